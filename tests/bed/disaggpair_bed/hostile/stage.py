"""A pair on which turns are played, compared with a recompute, and counted.

Turns go by the wire contract: P leg, P's parameters to D, D leg. An engine that ended or answers
nobody is counted and started again. After a failure the turn is played again without a handle, as
a router does it, and that has to be right.
"""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from random import Random
from typing import Any, Final

import aiohttp

from disaggpair_bed.cpu.engine import Engine
from disaggpair_bed.cpu.leases import Leases
from disaggpair_bed.cpu.pair import Pair
from disaggpair_bed.demo import counters
from disaggpair_bed.hostile.client import FIRST_TURN, Client, Leg
from disaggpair_bed.hostile.conversation import Conversation, Handle, Tokens
from disaggpair_bed.hostile.distribution import TOLERANCE, Top, largest_distance
from disaggpair_bed.hostile.record import Counts, Record, is_wrong
from disaggpair_bed.hostile.turns import Played, Turn
from disaggpair_connector import contract

ANSWER_TOKENS: Final = (16, 16, 90)
"""Of these one is drawn for each answer; a P that kept the prompt lacks more than the 64 tokens
that it would rather compute after the long one only."""
SIGN_OF_LIFE: Final = (5,) * 40
"""A prompt that any engine answers at once."""
_ABORT_WITHIN_S: Final = 0.15
"""A leg of the bed's model takes about that long."""

Say = Callable[[str], None]


class Stage:
    """The pair, the conversations on it and the record.

    Args:
        pair: healthy.
        session: HTTP without a time limit of its own.
        rng: decides everything that is not measured.
        ttl_s: `decoder_kv_blocks_ttl` of D.
        hung_s: a leg without an answer for so long counts as hung.
        say: gets a line for each turn that is not as it should be.
        record: counts the turns.
    """

    def __init__(
        self,
        pair: Pair,
        session: aiohttp.ClientSession,
        rng: Random,
        *,
        ttl_s: float,
        hung_s: float,
        say: Say,
        record: Record,
    ) -> None:
        self.pair = pair
        self.rng = rng
        self.ttl_s = ttl_s
        self.record = record
        self.conversations: list[Conversation] = []
        self.p = Client(session, pair.prefill.url, hung_s)
        self.d = Client(session, pair.decode.url, hung_s)
        self.leases = (
            Leases(session, pair.decode) if pair.options.connector == "DisaggPair" else None
        )
        self._say = say
        self._numbers = itertools.count()
        self._decks: dict[tuple[str, ...], list[str]] = {}

    def now_s(self) -> float:
        """The clock of `Handle.born_s`."""
        return time.monotonic()

    def fresh_salt(self) -> str:
        """A `cache_salt` that nothing was computed under."""
        return f"salt-{next(self._numbers)}"

    def deck(self, names: Sequence[str]) -> str:
        """One of the names at random; none comes again before all of them came."""
        deck = self._decks.setdefault(tuple(names), [])
        if not deck:
            deck += self.rng.sample(names, len(names))
        return deck.pop()

    async def play(self, *turns: Turn, usable: int | None = None) -> list[Played]:
        """Play turns at the same time and count them.

        Args:
            turns: all of one operation.
            usable: the most tokens that P may read in all of them, if not the sum of theirs.
        """
        before = await self._read_so_far()
        played = list(await asyncio.gather(*(self._legs(turn) for turn in turns)))
        read = max(0, await self._read_so_far() - before)
        for one in played:
            await self._judge(one)
        if usable is None:
            usable = sum(turn.usable for turn in turns)
        operation = turns[0].operation
        added = self.record.add(operation, played, usable=usable, read=read)
        for one in played:
            self._take_in(one)
            self._tell(one, added, usable)
        return played

    async def _legs(self, turn: Turn) -> Played:
        played = Played(turn)
        if turn.uses is not None:
            turn.uses.spent = True
        if turn.is_direct:
            played.decode = await self._d_leg(turn, turn.direct)
            return played
        handle = first_turn(turn.conversation) if turn.handle is None else turn.handle
        p_leg = self.p.complete(turn.prompt, 1, params=handle, salt=turn.salt)
        if turn.abort == "prefill":
            await self._left_early(p_leg)
            return played
        played.prefill = await p_leg
        if turn.uses is not None and turn.handle == turn.uses.params:
            turn.uses.used = played.prefill.answered
        if not played.prefill.answered:
            return played
        offer: Any = played.prefill.params
        if turn.change_offer is not None and isinstance(offer, Mapping):
            offer = turn.change_offer(offer)
        d_leg = self._d_leg(turn, offer)
        if turn.abort == "decode":
            await self._left_early(d_leg)
        else:
            played.decode = await d_leg
        return played

    async def _d_leg(self, turn: Turn, params: Any) -> Leg:
        # Siblings are sampled: at temperature 0 they would be the same.
        more: Mapping[str, Any] = (
            {"n": turn.siblings, "temperature": 1, "seed": len(turn.prompt)}
            if turn.siblings > 1
            else {}
        )
        return await self.d.complete(
            turn.prompt, self.rng.choice(ANSWER_TOKENS), params=params, salt=turn.salt, **more
        )

    async def _left_early(self, leg: Coroutine[Any, Any, Leg]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.rng.random() * _ABORT_WITHIN_S):
                await leg

    async def _judge(self, played: Played) -> None:
        """Compare, look after the engines, and play again without a handle what failed."""
        if not all(leg.answered for leg in played.legs) or played.turn.abort:
            await self._look_after(played)
        await self._compare(played)
        turn = played.turn
        if played.turn.is_hostile and played.answered:
            await self._probe(played)
        if not played.answered and not turn.is_direct:
            again = Turn(turn.operation, turn.conversation, turn.prompt, turn.salt)
            played.retry = await self._legs(again)
            if not all(leg.answered for leg in played.retry.legs):
                await self._look_after(played.retry)
            await self._compare(played.retry)

    async def _compare(self, played: Played) -> None:
        if played.prefill is None and played.decode is None:
            return
        prompt: Tokens = played.turn.prompt
        answer: Tokens = ()
        tops: list[Top] = []
        if played.decode is not None and played.decode.answered:
            answer, tops = played.decode.tokens, list(played.decode.tops)
        first = len(prompt)
        # At least one token more than the prompt, since a prompt says nothing of what follows it.
        whole = prompt + (answer or prompt[:1])
        truth = await self.p.distributions(whole, first, self.fresh_salt())
        if truth is None:
            await self._look_after(played)
            return
        of_p = [] if played.prefill is None else list(played.prefill.tops)
        played.distances = (
            largest_distance(of_p, truth[: len(of_p)]),
            largest_distance(tops, truth[: len(tops)]),
        )

    async def _probe(self, played: Played) -> None:
        """Ask both engines for the same prompt without a handle: their caches may be poisoned."""
        turn = played.turn
        right = played.decode.tops[:1] if played.decode and not is_wrong(played) else None
        if right is None:
            truth = await self.p.distributions(
                turn.prompt + turn.prompt[:1], len(turn.prompt), self.fresh_salt()
            )
            right = truth
        for client in (self.p, self.d):
            leg = await client.complete(turn.prompt, 1, salt=turn.salt)
            if not leg.answered or right is None:
                await self._look_after(played)
                return
            played.poisoned |= largest_distance(leg.tops, right) > TOLERANCE

    async def _look_after(self, played: Played) -> None:
        """Find engines that ended or are stuck, and start them again."""
        for engine, client in ((self.pair.prefill, self.p), (self.pair.decode, self.d)):
            if not _lives(engine):
                played.died += (engine.role,)
            elif not (await client.complete(SIGN_OF_LIFE, 1, salt=self.fresh_salt())).answered:
                if _lives(engine):
                    played.stuck += (engine.role,)
                else:
                    played.died += (engine.role,)
            else:
                continue
            self._restart(engine)

    def _restart(self, engine: Engine) -> None:
        engine.restart()
        if engine.role == "decode":
            for conversation in self.conversations:
                conversation.handles.clear()

    def _take_in(self, played: Played) -> None:
        """Let the conversation go on with the answer, or end it if its KV cannot be trusted."""
        conversation = played.turn.conversation
        last = played.retry or played
        if not last.answered or played.poisoned or is_wrong(played):
            if conversation in self.conversations:
                self.conversations.remove(conversation)
            return
        leg = last.decode
        assert leg is not None
        turn = played.turn
        handle = None
        if isinstance(leg.params, Mapping) and leg.params.get("remote_request_id"):
            held = (turn.prompt + leg.tokens)[:-1]
            handle = Handle(leg.params, held, turn.salt, self.now_s())
        if turn.salt == conversation.salt:
            conversation.went_on(turn.prompt, leg.tokens, handle)
        if conversation not in self.conversations:
            self.conversations.append(conversation)

    def _tell(self, played: Played, added: Counts, usable: int) -> None:
        if not added.faults and not added.slow:
            return
        turn = played.turn
        legs = ", ".join(
            f"{leg.outcome} in {leg.seconds:.1f} s {leg.message[:120]}".rstrip()
            for leg in played.legs
        )
        distance = (
            "-" if played.distances is None else "P {:.3f}, D {:.3f}".format(*played.distances)
        )
        self._say(
            f"  {turn.operation} [{turn.variant}] {len(turn.prompt)} tokens: {legs}; distance "
            f"{distance}, read {added.read} of {usable}, poisoned {played.poisoned}, "
            f"died {played.died}, stuck {played.stuck}"
        )

    async def _read_so_far(self) -> int:
        return counters.parse(await self.p.metrics()).read


def first_turn(conversation: Conversation) -> dict[str, Any]:
    """P's parameters for a turn without a handle; its salt is the conversation's key too."""
    return {**FIRST_TURN, contract.PAIR_PARAMS: {"conversation": conversation.salt}}


def _lives(engine: Engine) -> bool:
    return engine.running and engine.is_healthy()
