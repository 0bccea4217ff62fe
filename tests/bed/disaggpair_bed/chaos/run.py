"""A run: clients that talk to routers in front of engines, while these are disturbed."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import aiohttp

from disaggpair_bed.chaos.bench import Bench, lease_bench, leases_of
from disaggpair_bed.chaos.client import Client
from disaggpair_bed.chaos.disturb import Disturber
from disaggpair_bed.chaos.fleet import DEADLINE_S, Fleet
from disaggpair_bed.chaos.record import Record
from disaggpair_bed.chaos.talk import Shot, Talk
from disaggpair_bed.chaos.truth import Truth
from disaggpair_bed.routing import eventually
from disaggpair_bed.simengine import RunningEngine, watched_engines
from disaggpair_connector import contract

_FLAGS: Final = ("--sim-answer-tokens", "4-12", "--reasoning-parser", "toy")
_SAID_EVERY: Final = 500
_SETTLED_S: Final = 20.0

_TOLERATED: Final = ("abort_during_read",)
"""A router that is killed aborts what it had at engines. Whether an engine survives that is up to
the engine; no KV goes wrong by it."""


@dataclass(frozen=True)
class Plan:
    """What is run."""

    turns: int = 20_000
    seed: int = 0
    prefills: int = 2
    decodes: int = 2
    routers: int = 3
    clients: int = 6
    """Conversations at a time."""
    calm_s: float = 0.2
    """At most so long nothing is done to anybody."""
    ttl_s: float = 8.0
    """How long D keeps a lease."""
    blocks: int = 700
    """Of each engine's cache: so few that D has to take leases back."""


async def play(plan: Plan, say: Callable[[str], None] = lambda _: None) -> Record:
    """Run it; the record says what must not have been."""
    record = Record()
    extra = {
        contract.EXTRA_DECODE_TTL: plan.ttl_s,
        contract.EXTRA_PREFILL_LEASE: 6,
        contract.EXTRA_LEASE_CLAIM: 2.0,
        contract.EXTRA_LEASE_READ: 4.0,
    }
    with watched_engines() as begun:
        async with lease_bench(
            prefills=plan.prefills,
            decodes=plan.decodes,
            flags=(*_FLAGS, "--num-gpu-blocks-override", str(plan.blocks)),
            prefill_flags=("--no-enable-prefix-caching",) if plan.seed % 2 else (),
            extra=extra,
        ) as bench:
            await _Run(plan, bench, record, say).run()
        found = [finding for engine in begun for finding in engine.findings]
    for finding in found:
        if finding.startswith(_TOLERATED):
            record.router[finding.split()[0]] += 1
        else:
            record.faults.append(finding)
    return record


class _Run:
    def __init__(
        self, plan: Plan, bench: Bench, record: Record, say: Callable[[str], None]
    ) -> None:
        self._plan = plan
        self._bench = bench
        self._record = record
        self._say = say
        self._rng = Random(plan.seed)
        self._fleet = Fleet(bench, record)
        self._truth = Truth(bench.decode.options)
        self._disturber = Disturber(Random(plan.seed + 1), bench, self._fleet, record)
        self._begun = 0
        self._is_over = False

    async def run(self) -> None:
        for _ in range(self._plan.routers):
            await self._fleet.start()
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:
            client = Client(session, DEADLINE_S)
            disturbing = asyncio.create_task(self._disturb())
            async with asyncio.TaskGroup() as clients:
                for _ in range(self._plan.clients):
                    clients.create_task(self._talk(client))
            self._is_over = True
            await disturbing
            await self._disturber.end()
            await self._settle(client)
        await self._fleet.stop()
        await self._empty()

    async def _disturb(self) -> None:
        rng = Random(self._plan.seed + 2)
        while not self._is_over:
            await asyncio.sleep(rng.uniform(0, self._plan.calm_s))
            await self._disturber.act()

    async def _talk(self, client: Client) -> None:
        while self._record.turns < self._plan.turns:
            self._begun += 1
            talk = Talk.begun(Random(self._rng.random()), self._begun)
            while not talk.is_over and self._record.turns < self._plan.turns:
                await self._turn(client, talk)

    async def _turn(self, client: Client, talk: Talk) -> None:
        shots = talk.shots()
        urls = [self._fleet.url(talk.rng) for _ in shots]
        sent = await asyncio.gather(*map(client.send, urls, shots))
        truths = [self._truth.answers(shot.path, _as_sent(shot)) for shot in shots]
        judged = [self._record.took(*one) for one in zip(shots, sent, truths, strict=True)]
        if judged[0] == "right" and shots[0].kind != "two answers":
            talk.went(shots[0], sent[0].said[0])
        else:
            talk.failed()
        turns = self._record.turns
        if turns // _SAID_EVERY != (turns - len(shots)) // _SAID_EVERY:
            self._say(f"{turns} turns, {len(self._record.faults)} faults")

    async def _settle(self, client: Client) -> None:
        """Once nothing is done to anybody any more, every turn has an answer."""
        end = time.monotonic() + _SETTLED_S
        talk = Talk.begun(Random(1), 10**6)
        for front in self._fleet.fronts:
            shot = Shot("after all", "/v1/chat/completions", _plain(talk), dict(talk.headers))
            while True:
                came = await client.send(front.url, shot)
                if came.outcome == "answered" or time.monotonic() > end:
                    break
                await asyncio.sleep(0.1)
            found = self._record.took(shot, came, self._truth.answers(shot.path, shot.body))
            if found != "right":
                self._record.faults.append(f"a router that had no answer at the end: {came}")

    async def _empty(self) -> None:
        """Leases have an end: nothing is held by anybody once all their times are over."""
        with contextlib.suppress(AssertionError):
            await eventually(
                lambda: not any(map(_held, self._bench.engines)), self._plan.ttl_s + _SETTLED_S
            )
        for engine in self._bench.engines:
            if held := _held(engine):
                self._record.faults.append(f"an engine that still holds {held} at the end")


def _held(engine: RunningEngine) -> str:
    """What an engine still has, and for whom; empty for nothing."""
    leases = leases_of(engine)
    held = [f"{leases} leases"] if leases else []
    for core in (one.core for one in engine.ranks.engines):
        if core.pool.used_blocks:
            queues = core.queues
            kept = len(core.connector.kept_blocks())
            counts = {"waiting": len(queues.waiting), "running": len(queues.running)}
            counts |= {"parked": len(queues.parked), "reading": len(queues.reading)}
            counts |= {"aborted": len(queues.aborted_while_parked), "blocks kept": kept}
            role = core.connector.__class__.__name__
            held.append(f"{core.pool.used_blocks} blocks ({role}, {counts})")
    return " and ".join(held)


def _as_sent(shot: Shot) -> dict[str, Any]:
    """The body as the engine is to see it."""
    dropped = ("conversation_id", "kv_transfer_params", "vllm_xargs")
    return {key: value for key, value in shot.body.items() if key not in dropped}


def _plain(talk: Talk) -> dict[str, Any]:
    return {"model": "toy", "messages": [{"role": "user", "content": "at last"}], "stream": False}
