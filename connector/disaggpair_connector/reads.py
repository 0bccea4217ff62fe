"""Reads of one role from the other, from the question to its end: the same on P and on D.

A handle names a lease of the other role. Its owner is asked first; from then on it keeps the
blocks for this one read, and says which tokens they hold and where they are. What is read are the
blocks of the tokens that the own prompt begins with. Nothing of the handle but the name of the
lease is used, so whatever a router sent (a used handle, another conversation's, one of an engine
that has restarted), no block is read that does not hold the right token: it is computed.

Knows vLLM by the attributes of its requests and nothing else; questions go through `reader`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from logging import Logger
from typing import Any, Final, Protocol

from disaggpair_connector.digest import Digests
from disaggpair_connector.handle import LeaseHandle, Refusal
from disaggpair_connector.transfer_plan import Readable, plan_read
from disaggpair_connector.wire import Declined, ReadAnswer

READ_DEADLINES: Final = "disaggpair_read_seconds"
"""Attribute of the metadata to the worker: seconds that each new read may take."""

IDLE_WAIT_S: Final = 0.005
"""How long a step waits for answers when nothing else can be done. An empty step costs about as
much, and by the time it is over a peer of the same data centre has answered."""

_NOTHING: Final = (0, False)


class Ticket(Protocol):
    """A question that was asked, as `reader_ticket.Ticket` is one."""

    def done(self) -> bool:
        """Whether there is an answer."""
        ...

    def result(self) -> ReadAnswer | Declined:
        """The answer."""
        ...

    def wait(self, seconds: float) -> None:
        """Wait for the answer, so long at most."""
        ...

    def cancel(self) -> None:
        """Give the lease back, if the answer grants it."""
        ...


class Reader(Protocol):
    """Asks the owners of leases, as `reader.LeaseReader` does over sockets."""

    def ask(self, host: str, port: int, lease: str, token: str) -> Ticket:
        """Ask for the right to read."""
        ...

    def release(self, host: str, port: int, lease: str, token: str) -> None:
        """Tell that a lease is not wanted."""
        ...

    def finish(self, host: str, port: int, lease: str, token: str) -> None:
        """Tell that a lease has been read."""
        ...


class Counts(Protocol):
    """What is counted, as by `tally.Tally`."""

    def refused(self, reason: Refusal) -> None:
        """Tokens that a peer was said to hold are not read."""
        ...

    def verified(self, tokens: int) -> None:
        """Tokens are read whose digests were compared."""
        ...


@dataclass(slots=True, eq=False)
class Read:
    """A read, from the question on. Times are of the clock of `Reads`."""

    request: Any
    handle: LeaseHandle
    ticket: Ticket
    asked: float
    answer: ReadAnswer | None = None
    plan: Readable | None = None
    answered: float = 0.0
    is_begun: bool = False

    @property
    def kept_until(self) -> float:
        """Until when the owner keeps the blocks, at the least: it began to count later."""
        return self.asked + (self.answer.deadline_s if self.answer else 0.0)

    def as_reader(self) -> tuple[str, int, str, str]:
        """Where and how the reader that the answer made ends the lease."""
        assert self.answer is not None
        return self.handle.host, self.handle.port, self.handle.lease, self.answer.token


class Reads:
    """The reads of one engine.

    Args:
        reader: asks the owners of leases.
        tally: what is counted for /metrics.
        held_by: how many leading tokens of a request's prompt are among those of some digests.
        block_size: tokens per block.
        divisible: whether a part of what is held can be read.
        clock: clock that never goes back, in seconds.
        begin_by: until when a read may begin.
        end_by: until when a read that begins now may end.
        log: says at level debug why something is computed, once when an owner falls silent.
        answered: called when there is something to read.
    """

    def __init__(
        self,
        reader: Reader,
        tally: Counts,
        held_by: Callable[[Any, Digests], int],
        *,
        block_size: int,
        divisible: bool,
        clock: Callable[[], float],
        begin_by: Callable[[Read], float],
        end_by: Callable[[Read], float],
        log: Logger,
        answered: Callable[[Read], None] | None = None,
    ) -> None:
        self._reader = reader
        self._tally = tally
        self._held_by = held_by
        self._block_size = block_size
        self._divisible = divisible
        self._clock = clock
        self._begin_by = begin_by
        self._end_by = end_by
        self._log = log
        self._answered = answered
        self._live: set[str] = set()
        self._may_wait = True
        self._of: dict[str, Read] = {}
        self._asked: dict[str, Read] = {}
        self._begun: dict[str, Read] = {}
        self._deadlines: dict[str, float] = {}
        self._unreachable: set[tuple[str, int]] = set()

    def arrived(self, request: Any) -> None:
        """The engine has a new request, which may have nothing to read."""
        self._live.add(request.request_id)

    def ask(self, request: Any, handle: LeaseHandle) -> None:
        """Ask the owner of the lease that a request's handle names."""
        where = (handle.host, handle.port, handle.lease, handle.token)
        if handle.is_release:
            self._reader.release(*where)
            return
        asked = self._clock()  # before the owner can have begun to count
        read = Read(request, handle, self._reader.ask(*where), asked)
        self._of[request.request_id] = self._asked[request.request_id] = read

    def poll(self) -> None:
        """A step is put together: take in the answers that have come."""
        self._may_wait = True
        for read in [read for read in self._asked.values() if read.ticket.done()]:
            self._settle(read)

    def tokens(self, request: Any, computed: int, least: int) -> tuple[int | None, bool]:
        """Tokens to read beyond those computed, as vLLM asks; None while there is no answer.

        Args:
            request: vLLM's.
            computed: tokens that this engine has.
            least: fewer than so many are computed instead.
        """
        read = self._of.get(request.request_id)
        if read is None or read.is_begun:
            # Also after the read, well or not: to promise its tokens a second time would park the
            # request for ever, since vLLM queues one read for a request (0.31 to 0.33).
            return _NOTHING
        if read.plan is None:
            if not read.ticket.done() and not self._waited_for(read):
                return None, False
            if not self._settle(read):
                return _NOTHING
        assert read.plan is not None
        tokens = min(read.plan.tokens, request.num_prompt_tokens) - computed
        if self._clock() > self._begin_by(read):
            self._drop(read, "late")
        elif tokens < max(1, least):
            self._drop(read, "short")
        else:
            return tokens, True
        return _NOTHING

    def begin(self, request: Any, tokens: int) -> Readable | None:
        """What to read now that vLLM has blocks for so many tokens of it."""
        read = self._of.get(request.request_id)
        if read is None or read.is_begun or read.plan is None:
            return None
        if tokens == 0:  # vLLM computes all of the prompt, as it does for prompt logprobs
            self._drop(read, "short")
            return None
        read.is_begun = True
        self._begun[request.request_id] = read
        self._deadlines[request.request_id] = self._end_by(read)
        self._tally.verified(tokens)
        return read.plan

    def forget(self, request: Any) -> bool:
        """A request has ended; True if it had a read that was not begun, which is given back."""
        self._live.discard(request.request_id)
        read = self._of.pop(request.request_id, None)
        self._asked.pop(request.request_id, None)
        if read is None or read.is_begun:
            return False
        read.ticket.cancel()
        return True

    def give_back_half(self) -> None:
        """Give back what the later half of the requests holds that still wait for blocks."""
        held = [read for read in self._of.values() if read.plan is not None and not read.is_begun]
        for read in held[len(held) // 2 :]:
            self._drop(read, "late")

    def ended(self, connector_output: Any) -> None:
        """Tell the owners how reads ended; their engines see it only when they next step."""
        for request_id in connector_output.finished_recving or ():
            read = self._begun.pop(request_id, None)
            if read is None:
                continue
            if request_id in getattr(connector_output, "failed_recving", ()):
                self._reader.release(*read.as_reader())
                self._refuse(read, "failed")
            else:
                self._reader.finish(*read.as_reader())

    def take_deadlines(self) -> dict[str, float]:
        """Seconds that each read may take that has begun since the last call."""
        now = self._clock()
        taken = {request: deadline - now for request, deadline in self._deadlines.items()}
        self._deadlines.clear()
        return taken

    def _waited_for(self, read: Read) -> bool:
        """Wait for an answer, once in a step, if all requests here do; whether it has come."""
        if not self._may_wait or self._live - self._asked.keys():
            return False
        self._may_wait = False
        read.ticket.wait(IDLE_WAIT_S)
        return read.ticket.done()

    def _settle(self, read: Read) -> bool:
        """Take an answer in; False if nothing is to be read."""
        self._asked.pop(read.request.request_id, None)
        answer = read.ticket.result()
        self._watch(read, answer)
        if isinstance(answer, Declined):
            self._of.pop(read.request.request_id, None)
            self._refuse(read, answer.reason)
            return False
        read.answer = answer
        proven = self._held_by(read.request, answer.digests)
        read.plan = plan_read(
            proven, answer, block_size=self._block_size, divisible=self._divisible
        )
        if read.plan is None:
            self._drop(read, "tokens")
            return False
        read.answered = self._clock()
        if self._answered is not None:
            self._answered(read)
        return True

    def _drop(self, read: Read, reason: Refusal) -> None:
        """Give the lease back; its owner frees the blocks at once and not at the deadline."""
        self._of.pop(read.request.request_id, None)
        self._reader.release(*read.as_reader())
        self._refuse(read, reason)

    def _refuse(self, read: Read, reason: Refusal) -> None:
        self._tally.refused(reason)
        self._log.debug("Computing all of %s: %s", read.request.request_id, reason)

    def _watch(self, read: Read, answer: ReadAnswer | Declined) -> None:
        """Say once when an owner cannot be asked any more, and once when it can again."""
        where = (read.handle.host, read.handle.port)
        is_silent = isinstance(answer, Declined) and answer.reason in ("unreachable", "timeout")
        if is_silent and where not in self._unreachable and len(self._unreachable) < 64:
            self._unreachable.add(where)
            self._log.warning("Leases at %s:%d cannot be asked for; computing instead.", *where)
        elif not is_silent and where in self._unreachable:
            self._unreachable.discard(where)
            self._log.info("Leases at %s:%d can be asked for again.", *where)
