"""The router's ways, its choice and its guard in front of a pair on two GPUs.

    python ways.py --model MODEL --out FOLDER ours:256 ours:16:table

A setup is KIND:BLOCK_SIZE as in `measure.py`, with the parts that are measured after it (`table`,
`mixed`, `guard`; all of them by default). P's prefix cache is off, as if other traffic had evicted
every conversation; D's is on and holds them.
"""
# ruff: noqa: T201 - it prints its tables

import argparse
import asyncio
import json
import os
import shlex
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from distances import report as report_distances
from distances import sample
from front import Engines, Router
from measure import setup_of
from mixed import measure, prepare, talks_of, trace
from mixed import report as report_mixed
from pair import Machine, Pair, Setup
from tables import table
from talk import Talk

from disaggpair_connector.contract import LEASE_KEY_ENV

_P_STEP: Final = 8192
_STEP: Final = 512
"""Tokens that D computes in one step at most; P has its own bound."""
_TTL_S: Final = 3600
_KEY: Final = "key-of-the-measured-pair"
_PORT: Final = 9000
_WAY: Final[dict[str, Any]] = {"way": {"header": "x-way", "step_tokens": _STEP}}
_SEED: Final = 5


class Bench:
    """A pair that runs, and what is measured of it."""

    def __init__(self, engines: Engines, folder: Path, arguments: argparse.Namespace) -> None:
        self._engines = engines
        self._folder = folder
        self._arguments = arguments
        self._ports = iter(range(_PORT, _PORT + 100, 2))

    def router(self, name: str, *, alone: bool = False, **fields: Any) -> Router:
        port = next(self._ports)
        return Router(name, self._engines, self._folder, port, alone=alone, **fields)

    def table(self) -> Any:
        """Each way alone."""
        arguments = self._arguments
        with (
            self.router("plain-table", alone=True) as plain,
            self.router("table", **_WAY) as router,
        ):
            return asyncio.run(
                table(
                    plain,
                    router,
                    self._engines.prefill,
                    histories=arguments.histories,
                    new_tokens=arguments.new,
                    rounds=arguments.rounds,
                )
            )

    def mixed(self) -> Any:
        """All at once, by each way and by choice."""
        arguments = self._arguments
        talks = talks_of(arguments.talks)
        runs = []
        with self.router("plain-mixed", alone=True) as plain:
            asyncio.run(prepare(plain, talks))
            for name in arguments.ways:
                way = "" if name == "chosen" else name
                with self.router(f"mixed-{name}", **_WAY) as router:
                    for per_s, turns in arguments.rates:
                        if way == "FULL" and per_s > arguments.full_up_to:
                            continue
                        plan = trace(_SEED, per_s=per_s, turns=turns, talks=len(talks))
                        run = asyncio.run(
                            measure(
                                router,
                                plain,
                                self._engines.prefill,
                                self._engines.decode,
                                talks,
                                plan,
                                way,
                            )
                        )
                        report_mixed(per_s, run)
                        runs.append({"per_s": per_s, **run})
                    print(*router.complaints(), sep="\n", end="", flush=True)
        return runs

    def guard(self) -> Any:
        """Distances of right and of wrong KV, and what the guard makes of the turns."""
        rows = []
        guard: dict[str, Any] = {"guard": {"sample": 1.0}}
        with (
            self.router("plain-guard", alone=True) as plain,
            self.router("guard", **_WAY, **guard) as router,
        ):
            for number in range(self._arguments.samples):
                history = 4_000 if number % 8 < 6 else 24_000
                talk = Talk(f"guard-{number}", 900 + number, history)
                way, new = ("PULL", "DIRECT")[number % 2], (128, 1_024)[number // 2 % 2]
                rows.append(asyncio.run(sample(router, plain, self._engines, talk, new, way)))
            report_distances(rows)
            results = router.named("guard_checks_total")
            print(f"guard: {results}", *router.complaints(), sep="\n", flush=True)
        return {"samples": rows, "results": results}


def parts_of(bench: Bench, names: list[str], result: Path) -> int:
    failures = 0
    for name in names:
        part: Callable[[], Any] = getattr(bench, name)
        started = time.monotonic()
        try:
            found = part()
            (result.parent / f"{result.name}-{name}.json").write_text(json.dumps(found))
        except Exception:
            failures += 1
            traceback.print_exc(file=sys.stdout)
        print(f"{result.name} {name}: {time.monotonic() - started:.0f} s", flush=True)
    return failures


def run(setups: list[tuple[Setup, list[str]]], machine: Machine, arguments: Any) -> int:
    failures = 0
    following = Pair(setups[0][0], machine)
    for number, (setup, parts) in enumerate(setups):
        with following as pair:
            pair.open_gate()
            try:
                print(f"{setup.name}: up after {pair.wait_until_healthy():.0f} s", flush=True)
                if number + 1 < len(setups):
                    following = Pair(setups[number + 1][0], machine, number + 1)
                bench = Bench(pair, machine.logs, arguments)
                failures += parts_of(bench, parts, machine.logs / setup.name)
            except RuntimeError as error:
                print(f"{setup.name}: FAILED {error}", flush=True)
                failures += 1
                break
            finally:
                found = pair.log_lines("KV Transfer metrics", "Error", "WARNING", last=4)
                print(*found, sep="\n", flush=True)
    return failures


def setup_with_parts(text: str) -> tuple[Setup, list[str]]:
    kind, block, *parts = text.split(":")
    setup = setup_of(f"{kind}:{block}")
    setup.extra["decoder_kv_blocks_ttl"] = _TTL_S
    return setup, parts or ["table", "mixed", "guard"]


def rate(text: str) -> tuple[float, int]:
    per_s, turns = text.split("x")
    return float(per_s), int(turns)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("setups", nargs="+", type=setup_with_parts)
    made.add_argument("--model", type=Path, required=True)
    made.add_argument("--out", type=Path, required=True)
    made.add_argument("--gpus", type=int, choices=(1, 2), default=2)
    made.add_argument("--kv-gib", type=int, nargs=2, default=[64, 64], help="for KV, P and D")
    made.add_argument("--mlps", type=int, default=0, help="sets of MLP weights, 0 for all")
    made.add_argument("--histories", type=int, nargs="+", default=[8_000, 24_000])
    made.add_argument("--new", type=int, nargs="+", default=[128, 512, 2_048, 8_192])
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--talks", type=int, default=16, help="conversations at once")
    made.add_argument("--ways", nargs="+", default=["chosen", "PULL", "DIRECT", "FULL"])
    made.add_argument("--rates", type=rate, nargs="+", default=[(1, 40), (2, 60), (4, 100)])
    made.add_argument("--full-up-to", type=float, default=1.0, help="turns a second by FULL")
    made.add_argument("--samples", type=int, default=24, help="turns for the guard")
    made.add_argument("--serve", default="", help="more arguments of vllm serve, in one string")
    return made


def main() -> int:
    arguments = parser().parse_args()
    os.environ[LEASE_KEY_ENV] = _KEY
    serve = "--load-format dummy --max-model-len 40960 --max-num-seqs 32"
    machine = Machine(
        arguments.model,
        arguments.out,
        gpus=arguments.gpus,
        args=(
            *shlex.split(serve),
            "--enable-prompt-tokens-details",
            *shlex.split(arguments.serve),
        ),
        role_args={
            role: (
                *("--max-num-batched-tokens", str(step)),
                *("--kv-cache-memory-bytes", str(gib * 1024**3)),
            )
            for role, step, gib in zip(
                ("kv_producer", "kv_consumer"), (_P_STEP, _STEP), arguments.kv_gib, strict=True
            )
        },
        environment={
            "PAIR_SHUFFLE": "1",
            "PAIR_WEIGHTS": "1",
            **({"PAIR_MLPS": str(arguments.mlps)} if arguments.mlps else {}),
        },
    )
    arguments.out.mkdir(parents=True, exist_ok=True)
    return run(arguments.setups, machine, arguments)


if __name__ == "__main__":
    sys.exit(main())
