"""A run of hostile turns on a pair that it starts."""

import asyncio
import itertools
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import aiohttp

from disaggpair_bed.cpu.install import Engines
from disaggpair_bed.cpu.leases import LEASE_ENVIRONMENT
from disaggpair_bed.cpu.options import NO_PREFIX_CACHING, Connector
from disaggpair_bed.cpu.pair import Pair, PairOptions, RoleOptions
from disaggpair_bed.hostile import operations
from disaggpair_bed.hostile.client import Client
from disaggpair_bed.hostile.record import Record
from disaggpair_bed.hostile.stage import SIGN_OF_LIFE, Stage
from disaggpair_connector import contract

_USAGE = re.compile(r"^vllm:kv_cache_usage_perc\{[^}]*\} (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Plan:
    """What to run."""

    connector: Connector
    turns: int
    seed: int
    prefix_caching: bool
    """Of P; D always has it."""
    ttl_s: float = 30.0
    """How long D holds a turn."""
    hung_s: float = 45.0
    """A leg without an answer for so long counts as hung; above `ttl_s`, since a request of the
    plain connector may have to wait for that."""
    prefill_blocks: int = 4000
    """P's cache, in blocks of 32 tokens."""
    decode_blocks: int = 400
    """D's: a conversation of the run takes up to 63."""


def pair_options(plan: Plan) -> PairOptions:
    """The pair that a plan is for."""
    # No prompt is cut into steps, alone or beside others: see `distribution`.
    whole = ("--max-num-batched-tokens", "8192")
    ttl = {contract.EXTRA_DECODE_TTL: plan.ttl_s}
    return PairOptions(
        connector=plan.connector,
        prefill=RoleOptions(
            args=(
                *whole,
                *("--num-gpu-blocks-override", str(plan.prefill_blocks)),
                *(() if plan.prefix_caching else (NO_PREFIX_CACHING,)),
            ),
            extra=ttl,
        ),
        decode=RoleOptions(
            args=(*whole, "--num-gpu-blocks-override", str(plan.decode_blocks)),
            environment=LEASE_ENVIRONMENT,
            extra=ttl,
        ),
    )


def run(
    plan: Plan,
    engines: Engines,
    model: Path,
    folder: Path,
    say: Callable[[str], None],
    record: Record,
) -> tuple[float, float]:
    """Start the pair, play the turns, and end it.

    Args:
        plan: what to run.
        engines: the environment.
        model: the folder of the model.
        folder: where the engines' logs go.
        say: gets a line for each turn that is not as it should be.
        record: counts the turns, also those of a run that is interrupted.

    Returns:
        Share of P's and of D's cache that is in use after every lease has to be over.
    """
    with Pair(engines, model, folder, pair_options(plan)) as pair:
        return asyncio.run(_run(plan, pair, say, record))


async def _run(
    plan: Plan, pair: Pair, say: Callable[[str], None], record: Record
) -> tuple[float, float]:
    async with aiohttp.ClientSession() as session:
        stage = Stage(
            pair,
            session,
            Random(plan.seed),
            ttl_s=plan.ttl_s,
            hung_s=plan.hung_s,
            say=say,
            record=record,
        )
        step = max(1, plan.turns // 10)
        for turns in range(step, plan.turns + step, step):
            await operations.play(stage, min(turns, plan.turns))
            say(f"{record.turns} turns, {record.total.faults} faults")
        # P's own leases last 30 s.
        return await still_held(stage.p, stage.d, max(plan.ttl_s, 30) + 15)


async def still_held(p: Client, d: Client, within_s: float) -> tuple[float, float]:
    """Cache usage of both engines when nothing can be held any more; waits for it so long."""
    deadline = time.monotonic() + within_s
    for number in itertools.count():
        # An engine without a request does not step, and says nothing new of its cache.
        for client in (p, d):
            await client.complete(SIGN_OF_LIFE, 1, salt=f"held-{number}")
        shares = [cache_usage(await client.metrics()) for client in (p, d)]
        if max(shares) == 0 or time.monotonic() > deadline:
            return shares[0], shares[1]
        await asyncio.sleep(1)
    raise AssertionError("unreachable")


def cache_usage(page: str) -> float:
    """Share of the blocks that are in use, in a page of Prometheus text; NaN if it has none."""
    found = _USAGE.search(page)
    return float(found[1]) if found else float("nan")
