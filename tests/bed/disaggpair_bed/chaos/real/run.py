"""A run on real engines: clients that talk to a router while it and the engines are disturbed."""

import asyncio
import contextlib
import itertools
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import aiohttp

from disaggpair_bed.chaos.real.bench import (
    DEADLINE_S,
    PREFILL_LEASE_S,
    TTL_S,
    RealBench,
    real_bench,
)
from disaggpair_bed.chaos.real.disturb import RealDisturber
from disaggpair_bed.chaos.real.judge import Chain, Judge
from disaggpair_bed.chaos.real.talk import Ask, RealTalk
from disaggpair_bed.chaos.record import Record
from disaggpair_bed.cpu.install import Engines
from disaggpair_bed.cpu.leases import Leases
from disaggpair_bed.demo import counters
from disaggpair_bed.hostile.client import Client, Leg, Outcome
from disaggpair_bed.hostile.runner import still_held

_FOUND: Final[dict[Outcome, str]] = {
    "answered": "right",
    "refused": "error",
    "failed": "error",
    "gone": "cut",
    "hung": "silent",
}
_SETTLED_S: Final = 60.0
_CALM_S: Final = 30.0
_WAY: Final = re.compile(r" way=(\w+) (?:MISS reason=(\w+))?")
_THINKS_S: Final = 0.4
"""At most so long a client thinks between two turns."""
_SLOWLY: Final = 15
"""So many times longer while an engine starts."""


@dataclass(frozen=True)
class RealPlan:
    """What is run: so many turns at least, and so many things done to engines and router."""

    turns: int = 200
    acts: int = 13
    seed: int = 0
    clients: int = 5
    """Conversations at a time."""
    calm_turns: int = 60
    """At most so many turns are answered before the next thing is done to somebody: an engine takes
    most of a minute to start, and the other one answers many turns alone meanwhile."""


def play(
    plan: RealPlan, engines: Engines, model: Path, folder: Path, say: Callable[[str], None]
) -> Record:
    """Start the engines, run it, and end them; the record says what must not have been."""
    with real_bench(engines, model, folder, plan.seed) as bench:
        return asyncio.run(_played(plan, bench, say))


async def _played(plan: RealPlan, bench: RealBench, say: Callable[[str], None]) -> Record:
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session:
        run = _Run(plan, bench, session, say)
        await run.run()
        return run.record


class _Run:
    def __init__(
        self,
        plan: RealPlan,
        bench: RealBench,
        session: aiohttp.ClientSession,
        say: Callable[[str], None],
    ) -> None:
        self.record = Record()
        self._plan = plan
        self._bench = bench
        self._session = session
        self._say = say
        self._rng = Random(plan.seed)
        self._judge = Judge()
        self._client = Client(session, bench.router.url, DEADLINE_S)
        self._p, self._d = (Client(session, one.url, DEADLINE_S) for one in bench.engines)
        self._disturber = RealDisturber(Random(plan.seed + 1), bench, session, self.record, say)
        self._begun = 0
        self._is_disturbed = True
        self._read = 0
        self._last_read: dict[str, int] = {}

    async def run(self) -> None:
        await self._bench.router.ready(self._session)
        disturbing = asyncio.create_task(self._disturb())
        async with asyncio.TaskGroup() as clients:
            for _ in range(self._plan.clients):
                clients.create_task(self._talk())
        await disturbing
        await self._count_reads()
        await self._settle()
        self._say(f"{self.record.turns} turns; judging {self._judge.answers} answers")
        await self._judge.judge(self._p, self.record, self._say)
        await self._is_empty()
        self.record.router += Counter(ways(self._bench.router.log))
        self.record.router["answers judged"] = self._judge.answers
        self.record.router["largest distance (1e-4)"] = round(self._judge.largest * 1e4)
        self.record.router["tokens read"] = self._read

    async def _disturb(self) -> None:
        rng = Random(self._plan.seed + 2)
        try:
            for _ in range(self._plan.acts):
                await self._answered(rng.randrange(1, self._plan.calm_turns + 1))
                await self._count_reads()
                await self._disturber.act()
        finally:
            self._is_disturbed = False

    async def _answered(self, turns: int) -> None:
        """Wait until so many more turns have their answers, or for a time."""
        until = self.record.of("right") + turns
        end = time.monotonic() + _CALM_S
        for _ in itertools.count():
            if self.record.of("right") >= until or time.monotonic() > end:
                return
            await asyncio.sleep(0.1)

    async def _count_reads(self) -> None:
        """Add what was read since the last time; an engine that was started again is at 0."""
        for client in (self._p, self._d):
            read = counters.parse(await client.metrics()).read
            last = self._last_read.get(client.url, 0)
            self._read += read - last if read >= last else read
            self._last_read[client.url] = read

    async def _talk(self) -> None:
        while self._is_disturbed or self.record.turns < self._plan.turns:
            self._begun += 1
            talk = RealTalk.begun(Random(self._rng.random()), self._begun)
            chain: Chain | None = None
            failures = 0
            while not talk.is_over and failures < 3:
                chain, is_answered = await self._turn(talk, chain)
                failures = 0 if is_answered else failures + 1
                slowly = _SLOWLY if self._disturber.is_starting else 1
                await asyncio.sleep(talk.rng.uniform(0, _THINKS_S) * slowly)

    async def _turn(self, talk: RealTalk, chain: Chain | None) -> tuple[Chain | None, bool]:
        asks = talk.asks()
        legs = await asyncio.gather(*map(self._send, asks))
        for ask, leg in zip(asks[1:], legs[1:], strict=True):
            self._took(None, ask, leg)
        chain, is_answered = self._took(chain, asks[0], legs[0])
        if is_answered:
            talk.history = asks[0].prompt + legs[0].tokens
        return chain, is_answered

    def _took(self, chain: Chain | None, ask: Ask, leg: Leg) -> tuple[Chain | None, bool]:
        found = _FOUND[leg.outcome]
        if ask.leaves_after_s is not None and leg.outcome != "answered":
            found = "left" if leg.message == "left" else found
        is_whole = leg.answered and len(leg.tokens) == ask.tokens
        if leg.tokens and not is_whole:
            found = "broken"
        self.record.counts[ask.kind, found] += 1
        self.record.slowest_s = max(self.record.slowest_s, leg.seconds)
        if found == "silent":
            self.record.faults.append(f"silent: a turn of kind {ask.kind}: {leg.message}")
        if found == "error":
            self.record.codes[_code(leg)] += 1
        if is_whole:
            return self._judge.took(chain, ask.kind, ask.prompt, leg), True
        if leg.tokens:
            self._judge.took(None, ask.kind, ask.prompt, leg)
        return chain, False

    async def _send(self, ask: Ask) -> Leg:
        if not ask.is_streamed:
            return await self._client.complete(ask.prompt, ask.tokens, **ask.fields)
        sent = self._client.streamed(ask.prompt, ask.tokens, **ask.fields)
        if ask.leaves_after_s is None:
            return await sent
        try:
            async with asyncio.timeout(ask.leaves_after_s):
                return await sent
        except TimeoutError:
            return Leg("failed", ask.leaves_after_s, message="left")

    async def _settle(self) -> None:
        """Once nothing is done to anybody any more, a turn has an answer."""
        await self._disturber.mend()
        ask = RealTalk(Random(1), 0).asks()[0]
        end = time.monotonic() + _SETTLED_S
        while True:
            leg = await self._client.complete(ask.prompt, ask.tokens)
            if leg.answered:
                self._judge.took(None, "after all", ask.prompt, leg)
                self.record.counts["after all", "right"] += 1
                return
            if time.monotonic() > end:
                self.record.faults.append(f"no answer at the end: {leg}")
                return
            await asyncio.sleep(0.5)

    async def _is_empty(self) -> None:
        """Nothing is held once all times are over, and no request is in an engine."""
        shares = await still_held(self._p, self._d, max(TTL_S, PREFILL_LEASE_S) + _SETTLED_S)
        if any(shares):
            self.record.faults.append(f"caches in use at the end: {shares}")
        for engine in self._bench.engines:
            with contextlib.suppress(aiohttp.ClientError):
                if left := (await Leases(self._session, engine).listing())["leases"]:
                    self.record.faults.append(f"leases of {engine.role} at the end: {left}")


def ways(log: Path) -> list[str]:
    """The way of each turn that the routers have logged, and why nothing was read."""
    found = _WAY.findall(log.read_text(errors="replace"))
    return [f"{way} {reason}".strip() for way, reason in found]


def _code(leg: Leg) -> str:
    """A word on an error: its code if the router gave one."""
    _, _, rest = leg.message.partition('"code":"')
    return rest.partition('"')[0] or leg.message[:40] or leg.outcome
