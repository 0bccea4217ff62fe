"""Random histories of a pair: what P and D compute with is right, and nothing is lost."""

import contextlib
import os
from typing import Any

from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from disaggpair_connector.lease import LeaseError
from toypair.clock import CLOCK
from toypair.engine import Shape, ToyEngine
from toypair.model import answer
from toypair.pair import FIRST, Pair
from toypair.transport import FABRIC

SMALL = Shape(
    blocks=24, extra={"lease_read_s": 10, "lease_claim_s": 10, "decoder_kv_blocks_ttl": 200}
)
LONGEST = 60

tokens_said = st.integers(1, 9)
added = st.lists(st.integers(0, 49), max_size=12)
rarely = st.sampled_from([False, False, True])
few_steps = st.integers(0, 4)


class Histories(RuleBasedStateMachine):
    """Turns of a few conversations, in any order, with everything that can come between.

    An offer is a prompt and what comes of a P leg for it, which may not have ended; a handle is
    what D held, and the parameters that it gave.
    """

    offers = Bundle("offers")
    handles = Bundle("handles")
    prefill_shape = SMALL
    decode_shape = SMALL

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair(self.prefill_shape, self.decode_shape)
        self.expected: dict[str, tuple[ToyEngine, list[int], int]] = {}
        self.tokens_of: dict[str, list[int]] = {}

    # Turns.

    @initialize(target=handles)
    def start(self) -> Any:
        return self._whole_turn(list(range(20)), FIRST, 6)

    @rule(target=handles, seed=st.integers(0, 2), length=st.integers(1, 30), tokens=tokens_said)
    def converse(self, seed: int, length: int, tokens: int) -> Any:
        prompt = [(seed + number) % 50 for number in range(length)]
        return self._whole_turn(prompt, FIRST, tokens)

    @rule(target=handles, handle=handles, more=added, tokens=tokens_said)
    def go_on(self, handle: Any, more: list[int], tokens: int) -> Any:
        return self._whole_turn([*handle[0], *more][:LONGEST], handle[1], tokens)

    @rule(
        target=offers,
        handle=handles,
        other=handles,
        kept=st.integers(1, 40),
        more=added,
        is_swapped=st.booleans(),
        steps=few_steps,
    )
    def begin(
        self, handle: Any, other: Any, kept: int, more: list[int], is_swapped: bool, steps: int
    ) -> Any:
        """Continue, edit or truncate a conversation, with its handle or another one's."""
        prompt = [*(handle[0][:kept] if kept < 25 else handle[0]), *more][:LONGEST]
        name = self._add(self.pair.p, prompt, (other if is_swapped else handle)[1], 1)
        self._step(self.pair.p, steps)
        return prompt, self.pair.p.outcomes[name]

    @rule(
        target=handles,
        offer=offers,
        other=offers,
        tokens=tokens_said,
        siblings=st.integers(1, 3),
        is_swapped=st.booleans(),
        steps=st.integers(0, 12),
    )
    def decode(
        self, offer: Any, other: Any, tokens: int, siblings: int, is_swapped: bool, steps: int
    ) -> Any:
        """D legs with P's reply, if there is one, or another leg's."""
        params = (other if is_swapped else offer)[1].params
        names = [self._add(self.pair.d, offer[0], params, tokens) for _ in range(siblings)]
        self._step(self.pair.d, steps)
        return self._handles_of(offer[0], names)

    @rule(target=handles, handle=handles, more=added, claim=st.booleans(), steps=st.integers(0, 8))
    def direct(self, handle: Any, more: list[int], claim: bool, steps: int) -> Any:
        ours = dict(handle[1]["disaggpair"])
        if claim:
            with contextlib.suppress(LeaseError):
                ours["token"] = self.pair.d.book.claim(ours["lease"], "direct").token
        prompt = [*handle[0], *more][:LONGEST]
        name = self._add(self.pair.d, prompt, {"disaggpair": ours}, 3)
        self._step(self.pair.d, steps)
        return self._handles_of(prompt, [name])

    @rule(target=handles, handle=handles)
    def claim(self, handle: Any) -> Any:
        """A router takes a lease for a read that it may never ask for."""
        tokens, params = handle
        try:
            lease = self.pair.d.book.claim(params["disaggpair"]["lease"], "read")
        except LeaseError:
            return multiple()
        return tokens, {**params, "disaggpair": {**params["disaggpair"], "token": lease.token}}

    # What comes between.

    @rule(p_steps=few_steps, d_steps=few_steps, seconds=st.sampled_from([0, 1, 4, 11, 40]))
    def step(self, p_steps: int, d_steps: int, seconds: int) -> None:
        self._step(self.pair.p, p_steps)
        CLOCK.advance(seconds)
        self._step(self.pair.d, d_steps)

    @rule(reads=rarely, answers=rarely, notifications=rarely)
    def disturb(self, reads: bool, answers: bool, notifications: bool) -> None:
        """Hold reads and answers, lose notifications, from now on."""
        FABRIC.hold = lambda read: reads
        FABRIC.loses_notifications = notifications
        for reader in self.pair.readers:
            reader.holds_answers = answers
            reader.loses = {"finish"} if notifications else set()
            if not answers:
                reader.deliver()

    @precondition(lambda self: bool(FABRIC.waiting()))
    @rule(is_failed=st.booleans(), number=st.integers(0, 3))
    def end_a_read(self, is_failed: bool, number: int) -> None:
        reads = FABRIC.waiting()
        (FABRIC.fail if is_failed else FABRIC.let_through)(reads[number % len(reads)])

    @precondition(lambda self: bool(self.expected))
    @rule(data=st.data())
    def abort(self, data: Any) -> None:
        name = data.draw(st.sampled_from(list(self.expected)))
        self.expected[name][0].abort(name)

    @rule(role=st.sampled_from(["p", "d"]), length=st.integers(1, 30), steps=st.integers(1, 2))
    def run_into_an_abort(self, role: str, length: int, steps: int) -> None:
        """Blocks are free while a step that writes them may be under way."""
        engine = getattr(self.pair, role)
        name = engine.add([7] * length, FIRST if role == "p" else None, tokens=9)
        self._step(engine, steps)
        engine.abort(name)

    @rule(role=st.sampled_from(["p", "d"]), seconds=st.sampled_from([0, 12, 40]))
    def strain(self, role: str, seconds: int) -> None:
        """Let an engine take most of its blocks, some time later."""
        CLOCK.advance(seconds)
        engine = getattr(self.pair, role)
        self._step(engine, 1)
        length = len(self.expected) % 9 + LONGEST
        self._add(engine, [49 - place % 7 for place in range(length)], None, 2)
        self._step(engine, 5)

    @rule(handle=handles)
    def release(self, handle: Any) -> None:
        with contextlib.suppress(LeaseError):
            self.pair.d.book.release(handle[1]["disaggpair"]["lease"])

    @rule(role=st.sampled_from(["p", "d"]))
    def reset(self, role: str) -> None:
        getattr(self.pair, role).scheduler.reset_prefix_cache()

    @rule(role=st.sampled_from(["p", "d", "", "", ""]))
    def restart(self, role: str) -> None:
        """Lose an engine now and then, and all that it had."""
        if role:
            gone = self.pair.restart(role)
            self.expected = {
                name: expected
                for name, expected in self.expected.items()
                if expected[0] is not gone
            }

    # What has to be so. That each step computes with the right KV is checked by the model.

    @invariant()
    def leases_hold_what_they_say(self) -> None:
        self.pair.held_rightly(self.tokens_of)

    @invariant()
    def answers_are_right(self) -> None:
        for name, (engine, prompt, tokens) in list(self.expected.items()):
            outcome = engine.outcomes[name]
            if outcome.reason is not None:
                del self.expected[name]
                assert outcome.reason == "abort" or outcome.tokens == answer(prompt, tokens)

    def teardown(self) -> None:
        try:
            self.pair.end()
            self.answers_are_right()
            assert self.expected == {}
            for engine in (self.pair.p, self.pair.d):
                for name in engine.counted:
                    event(f"{engine.role}: {name}")
        finally:
            self.pair.close()

    def _add(
        self, engine: ToyEngine, prompt: list[int], params: Any, tokens: int, **more: Any
    ) -> str:
        name = engine.add(prompt, params, tokens=tokens, **more)
        self.expected[name] = (engine, prompt, tokens)
        return name

    @staticmethod
    def _step(engine: ToyEngine, steps: int) -> None:
        for _ in range(steps):
            engine.step()

    def _whole_turn(self, prompt: list[int], params: Any, tokens: int) -> Any:
        """A turn to its end, unless something holds it up."""
        leg = self._add(self.pair.p, prompt, params, 1)
        self._step(self.pair.p, 8)
        if (offer := self.pair.p.outcomes[leg].params) is None:
            return multiple()
        name = self._add(self.pair.d, prompt, offer, tokens)
        self._step(self.pair.d, tokens + 4)
        return self._handles_of(prompt, [name])

    def _handles_of(self, prompt: list[int], names: list[str]) -> Any:
        found = []
        for name in names:
            outcome = self.pair.d.outcomes[name]
            if outcome.params and "disaggpair" in outcome.params:
                tokens = [*prompt, *outcome.tokens]
                self.tokens_of[outcome.params["disaggpair"]["lease"]] = tokens
                found.append((tokens, outcome.params))
        return multiple(*found)


class AsyncHistories(Histories):
    """With steps given out before the last one has come back."""

    prefill_shape = SMALL.but(is_async=True)
    decode_shape = SMALL.but(is_async=True)


class TightHistories(Histories):
    """On a D with hardly more blocks than one turn needs."""

    decode_shape = SMALL.but(blocks=19)


class WindowHistories(Histories):
    """Of a model whose every second layer looks back a few tokens."""

    prefill_shape = SMALL.but(window=8, blocks=40)
    decode_shape = SMALL.but(window=8, blocks=40)


class DraftHistories(Histories):
    """With guessed tokens, of which some are wrong."""

    prefill_shape = SMALL.but(draft_tokens=3)
    decode_shape = SMALL.but(draft_tokens=3)


_settings = settings(
    max_examples=int(os.environ.get("TOYPAIR_EXAMPLES", "25")), stateful_step_count=40
)
for machine in (Histories, AsyncHistories, TightHistories, WindowHistories, DraftHistories):
    machine.TestCase.settings = _settings

TestHistories = Histories.TestCase
TestAsyncHistories = AsyncHistories.TestCase
TestTightHistories = TightHistories.TestCase
TestWindowHistories = WindowHistories.TestCase
TestDraftHistories = DraftHistories.TestCase
