"""Whether requests wait on a D whose cache is full of finished turns.

The same requests are sent to an empty D and to a full one: the D leg of a turn, a request without
transfer parameters, and one whose answer needs block after block.
"""

import asyncio
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Final, Literal

import aiohttp

from disaggpair_bed.cpu.leases import LEASE_ENVIRONMENT, Leases
from disaggpair_bed.cpu.pair import Pair, RoleOptions
from disaggpair_bed.hostile.client import FIRST_TURN, Client, Leg
from disaggpair_bed.hostile.conversation import drawn
from disaggpair_bed.hostile.distribution import largest_distance
from disaggpair_connector import contract

DECODE_BLOCKS: Final = 140
"""Of 32 tokens: four of the conversations fill D."""

_PROMPT_TOKENS: Final = 1100
_GROWING_PROMPT_TOKENS: Final = 300
_GROWN_TOKENS: Final = 700
_ROUNDS: Final = 4
_QUEUED: Final = re.compile(r"^vllm:request_queue_time_seconds_sum\{[^}]*\} (\S+)$", re.MULTILINE)

Kind = Literal["turn", "plain", "growing", "turn beside growing"]
Place = Literal["empty", "full"]


@dataclass(frozen=True)
class Wait:
    """One request to D."""

    kind: Kind
    place: Place
    leg: Leg
    queued_s: float
    """From its arrival in the engine core until it was scheduled first; of one beside others,
    theirs are in it."""
    distance: float
    """Of its distributions from a recompute on P; not a number without an answer."""

    @property
    def first_s(self) -> float:
        """Until its first token, or until it was given up."""
        return self.leg.arrivals_s[0] if self.leg.arrivals_s else self.leg.seconds


def narrow_decode(ttl_s: float) -> RoleOptions:
    """A D that four finished conversations fill."""
    return RoleOptions(
        args=("--num-gpu-blocks-override", str(DECODE_BLOCKS)),
        environment=LEASE_ENVIRONMENT,
        extra={contract.EXTRA_DECODE_TTL: ttl_s},
    )


class Bench:
    """Sends the requests and keeps what they waited.

    Args:
        pair: its D has `DECODE_BLOCKS` blocks.
        session: without a time limit of its own.
        hung_s: a request without an answer for so long is given up.
        say: gets a line for each request.
    """

    def __init__(
        self, pair: Pair, session: aiohttp.ClientSession, hung_s: float, say: Callable[[str], None]
    ) -> None:
        self.p = Client(session, pair.prefill.url, hung_s)
        self.d = Client(session, pair.decode.url, hung_s)
        self.waits: list[Wait] = []
        self._say = say
        self._rng = Random(1)
        self._place: Place = "empty"

    async def on_empty(self, leases: Leases | None) -> None:
        """All kinds of requests to a D that holds nothing.

        Args:
            leases: of D, given up after each turn; without them D must have no turns to hold, and
                only what leaves none is measured.
        """
        self._place = "empty"
        for _ in range(_ROUNDS):
            if leases is not None:
                await self.turn("turn")
                await _give_up(leases)
            await self.plain("plain", _PROMPT_TOKENS, 1)
        await self._growing(_ROUNDS if leases is not None else 0, leases)

    async def on_full(self) -> None:
        """The same to a D that holds more conversations than it has blocks for."""
        self._place = "full"
        for _ in range(2 * _ROUNDS):
            await self.turn("turn")
        for _ in range(_ROUNDS):
            await self.plain("plain", _PROMPT_TOKENS, 1)
            await self.turn("turn")
        await self._growing(_ROUNDS, None)
        self._say(table(self.waits))

    async def _growing(self, turns: int, leases: Leases | None) -> None:
        await self.plain("growing", _GROWING_PROMPT_TOKENS, _GROWN_TOKENS)
        beside = asyncio.create_task(self.plain("growing", _GROWING_PROMPT_TOKENS, _GROWN_TOKENS))
        for _ in range(turns):
            await self.turn("turn beside growing")
            if leases is not None:
                await _give_up(leases)
        await beside

    async def turn(self, kind: Kind) -> None:
        """A first turn: P leg, then a D leg of one token, which leaves a finished turn on D."""
        prompt = drawn(self._rng, _PROMPT_TOKENS)
        p_leg = await self.p.complete(prompt, 1, params=FIRST_TURN)
        await self._sent(kind, prompt, 1, p_leg.params)

    async def plain(self, kind: Kind, prompt_tokens: int, tokens: int) -> None:
        """A request without transfer parameters."""
        await self._sent(kind, drawn(self._rng, prompt_tokens), tokens, None)

    async def _sent(self, kind: Kind, prompt: tuple[int, ...], tokens: int, params: object) -> None:
        before = await self._queued_so_far()
        leg = await self.d.streamed(prompt, tokens, params=params)
        queued_s = await self._queued_so_far() - before
        distance = float("nan")
        if leg.answered:
            truth = await self.p.distributions(prompt + leg.tokens, len(prompt), "recompute")
            distance = largest_distance(leg.tops, truth or ())
        wait = Wait(kind, self._place, leg, queued_s, distance)
        self.waits.append(wait)
        self._say(
            f"{wait.place:5} {wait.kind:20} {leg.outcome:8} first token "
            f"{wait.first_s:7.3f} s, queued {queued_s:7.3f} s, longest gap "
            f"{leg.longest_gap_s:7.3f} s, distance {distance:.4f}"
        )

    async def _queued_so_far(self) -> float:
        found = _QUEUED.search(await self.d.metrics())
        return float(found[1]) if found else 0.0


async def _give_up(leases: Leases) -> None:
    for lease in (await leases.listing())["leases"]:
        await leases.release(lease["id"])


def table(waits: Iterable[Wait]) -> str:
    """Markdown: the longest of each kind and place, in milliseconds."""
    lines = [
        "| D | request | sent | answered | first token | queued | longest gap between tokens |",
        "|---|---|---|---|---|---|---|",
    ]
    groups: dict[tuple[str, str], list[Wait]] = {}
    for wait in waits:
        groups.setdefault((wait.place, wait.kind), []).append(wait)
    for (place, kind), group in groups.items():
        answered = sum(wait.leg.answered for wait in group)
        first, queued, gap = (
            f"{max(values) * 1000:.0f}"
            for values in zip(
                *((wait.first_s, wait.queued_s, wait.leg.longest_gap_s) for wait in group),
                strict=True,
            )
        )
        lines.append(
            f"| {place} | {kind} | {len(group)} | {answered} | {first} | {queued} | {gap} |"
        )
    return "\n".join(lines)


async def observe(pair: Pair, hung_s: float, say: Callable[[str], None]) -> list[Wait]:
    """All waits of a fresh pair."""
    async with aiohttp.ClientSession() as session:
        ours = pair.options.connector == "DisaggPair"
        bench = Bench(pair, session, hung_s, say)
        await bench.on_empty(Leases(session, pair.decode) if ours else None)
        await bench.on_full()
        return bench.waits
