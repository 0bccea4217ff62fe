"""P and D that have met, and turns as a router makes them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from disaggpair_connector.lease import Lease
from toypair.clock import CLOCK
from toypair.engine import Outcome, Params, Shape, ToyEngine
from toypair.model import kv_of_all
from toypair.network import ToyReader
from toypair.transport import FABRIC

FIRST: Params = {"do_remote_decode": True, "do_remote_prefill": False}
"""Parameters of a first turn's P leg."""


class Pair:
    """A pair.

    Args:
        prefill: how P is set up.
        decode: how D is.
        have_met: whether their workers have shaken hands; else they do at the first read.
    """

    def __init__(
        self, prefill: Shape | None = None, decode: Shape | None = None, *, have_met: bool = True
    ) -> None:
        FABRIC.__init__()  # type: ignore[misc]  # as new
        self.p = ToyEngine("prefill", prefill or Shape())
        self.d = ToyEngine("decode", decode or Shape())
        if have_met:
            self.meet(self.p, self.d)
        self.seen: dict[str, Lease] = {}
        """D's leases that have been looked at, as they were last."""

    @staticmethod
    def meet(one: ToyEngine, other: ToyEngine) -> None:
        """Let the workers shake hands, so that no read waits for a thread."""
        for here, there in ((one, other), (other, one)):
            future = here.worker._ensure_handshake(
                there.half.engine_id, "127.0.0.1", there.port, tp_size=1
            )
            if future is not None:
                future.result(timeout=30)
                here.settle_handshakes()

    @property
    def readers(self) -> tuple[ToyReader, ToyReader]:
        """The questions of P and of D."""
        return self.p.reader, self.d.reader

    # Legs and turns.

    def prefill(self, prompt: Sequence[int], params: Params | None = None, **more: Any) -> Outcome:
        """A P leg, to its end."""
        name = self.p.add(prompt, FIRST if params is None else params, **more)
        self.p.run(name)
        return self.p.outcomes[name]

    def decode(
        self, prompt: Sequence[int], params: Params | None, *, tokens: int = 4, **more: Any
    ) -> Outcome:
        """A D leg, to its end."""
        name = self.d.add(prompt, params, tokens=tokens, **more)
        self.d.run(name)
        return self.d.outcomes[name]

    def turn(
        self,
        prompt: Sequence[int],
        handle: Params | None = None,
        *,
        tokens: int = 4,
        **more: Any,
    ) -> Outcome:
        """A turn over both engines; its parameters are the handle for the next one."""
        offer = self.prefill(prompt, handle, **more).params
        return self.decode(prompt, offer, tokens=tokens, **more)

    def conversation(self, prompt: Sequence[int], *, tokens: int = 4) -> tuple[list[int], Params]:
        """A first turn: what D holds then, and the handle."""
        outcome = self.turn(prompt, tokens=tokens)
        assert outcome.params is not None
        return [*prompt, *outcome.tokens], outcome.params

    def settle(self) -> None:
        """Step both engines until they are idle."""
        for _ in range(200):
            moved = [self.p.step(), self.d.step()]
            if not any(moved):
                return
        raise AssertionError(f"not idle: {self.p.status()} {self.d.status()}")

    def restart(self, role: str) -> ToyEngine:
        """End an engine as a crash does, and start another in its place; returns the first."""
        gone: ToyEngine = getattr(self, role)
        gone.close()
        setattr(self, role, ToyEngine(gone.role, gone.shape))
        self.meet(self.p, self.d)
        return gone

    @staticmethod
    def settle_one(engine: ToyEngine) -> None:
        """Step one engine until it is idle."""
        engine.run()

    # What has to be so.

    def held_rightly(self, tokens_of: dict[str, list[int]]) -> None:
        """Every lease's blocks are kept, and hold the tokens that it was granted on."""
        self.seen.update(self.d.leases)
        taken = {lease.state for lease in self.seen.values() if lease.ended == "reclaimed"}
        assert taken <= {"granted", "claimed"}, "a lease was taken that somebody reads"
        for lease in self.d.leases.values():
            assert all(block.ref_cnt > 0 for block in lease.pinned)  # type: ignore[attr-defined]  # as `pin` gave them
            if (tokens := tokens_of.get(lease.id)) is not None:
                blocks = list(lease.block_ids[0])
                assert self.d.memory.holds(blocks, kv_of_all(tokens[: lease.tokens])), lease.id

    def end(self) -> None:
        """Let everything end, and check that nothing is left of it."""
        FABRIC.hold = lambda read: False
        FABRIC.is_stuck = FABRIC.loses_notifications = False
        for reader in self.readers:
            if isinstance(reader, ToyReader):
                reader.holds_answers = False
                reader.loses = set()
                reader.deliver()
        for read in FABRIC.waiting():
            FABRIC.let_through(read)
        for _ in range(400):
            if not any([self.p.step(), self.d.step()]):
                break
            CLOCK.advance(1.0)
        else:
            raise AssertionError(f"not idle: {self.p.status()} {self.d.status()}")
        for _ in range(2):  # what ends in the first is waited for until the second
            CLOCK.advance(100_000.0)
            for engine in (self.p, self.d):
                engine.run(engine.add([1]))  # a step, in which what has expired is seen
            self.settle()
        for engine in (self.p, self.d):
            left_over(engine)

    def close(self) -> None:
        """End both engines."""
        self.p.close()
        self.d.close()


def left_over(engine: ToyEngine) -> None:
    """Check that an idle engine keeps nothing of the requests that it had."""
    assert not engine.scheduler.has_requests()
    assert engine.scheduler.requests == {}
    used = [block.block_id for block in engine.pool.blocks if block.ref_cnt and not block.is_null]
    assert used == [], f"{engine.role} lost blocks"
    assert engine.pool.get_num_free_blocks() == engine.shape.blocks - 1
    half, worker = engine.half, engine.worker
    kept: dict[str, Any] = {"leases": engine.leases, "prompts": half._prompts._of}
    for name in ("_of", "_asked", "_begun", "_deadlines"):
        kept[f"reads' {name}"] = getattr(half._reads, name)
    for name in ("_lease_of", "_direct", "_notified_late"):
        kept[name] = getattr(half, name, {})
    for name in ("_reqs_need_recv", "_reqs_need_send", "_heartbeat_req_engine"):
        kept[name] = getattr(half, name)
    for name in (
        "_recving_metadata",
        "_recving_transfers",
        "_reqs_to_send",
        "_reqs_to_process",
        "_recv_failures",
        "_read_deadlines",
        "_freed",
        "consumer_notification_counts_by_req",
    ):
        kept[f"worker's {name}"] = getattr(worker, name)
    left = {name: value for name, value in kept.items() if value}
    assert not left, f"{engine.role} keeps {left}"


@contextmanager
def a_pair(prefill: Shape | None = None, decode: Shape | None = None) -> Iterator[Pair]:
    """A pair for one test, which leaves nothing behind if the test succeeds."""
    pair = Pair(prefill, decode)
    try:
        yield pair
        pair.end()
    finally:
        pair.close()
