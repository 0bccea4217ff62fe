"""D's scheduler half: it reads what P computed, and gives leases on what it holds afterwards.

A request that ends with a lease is over for vLLM: its blocks are kept by references of ours, so
an engine that only holds leases has no request, and neither steps nor waits in a loop. P's
notification that it has read comes through vLLM's worker, which has to be told which request ids
are still expected (`_reqs_in_batch`) and which are not (`_reqs_not_processed`).
"""

import secrets
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from disaggpair_connector import engine, handle
from disaggpair_connector.book import LeaseBook
from disaggpair_connector.directs import DirectTurns
from disaggpair_connector.handle import Direct, HandleError, LeaseHandle
from disaggpair_connector.kept import Kept, heartbeat_margin_s
from disaggpair_connector.lease import Lease
from disaggpair_connector.pool import PoolHolder, drop_before_reset, yield_to_need
from disaggpair_connector.prompts import Prompts
from disaggpair_connector.reader import LeaseReader
from disaggpair_connector.reads import READ_DEADLINES, Read, Reads
from disaggpair_connector.standstill import Standstill
from disaggpair_connector.tally import Tally

logger = engine.engine_logger()

LATE_NOTIFICATION_S: Final = 600.0
"""How long a notification of a read is expected after its lease has ended."""

HUNG_READ_S: Final = 300.0
"""A read of P's blocks that takes longer counts as failed; heartbeats keep the blocks so long."""


class DecodeScheduler(engine.NixlPullConnectorScheduler):  # type: ignore[misc]  # no types there
    """vLLM's pull scheduler on a decode engine.

    Args:
        book: the leases of this engine.
        tally: what is counted for /metrics.
        lease_port: where the book's listener serves.
        reader: asks the owners of leases.
        clock: clock that never goes back.
    """

    def __init__(
        self,
        vllm_config: Any,
        engine_id: str,
        kv_cache_config: Any,
        *,
        book: LeaseBook,
        tally: Tally,
        lease_port: int,
        reader: LeaseReader,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(vllm_config, engine_id, kv_cache_config)
        self._book = book
        self._tally = tally
        self._lease_port = lease_port
        self._clock = clock
        self._prompts = Prompts(tally)
        self._reader = reader
        self._divisible = engine.is_divisible(self)
        self._by_place = engine.is_by_place(self)
        self._reads = Reads(
            reader,
            tally,
            self._prompts.held_by,
            block_size=self.block_size,
            divisible=self._divisible,
            clock=clock,
            begin_by=self._begin_by,
            end_by=lambda read: self._kept.begin(read.request.request_id, clock()),
            log=logger,
            answered=self._keep_alive,
        )
        # As P's worker extends its lease.
        self._kept = Kept(self._kv_lease_duration * 2 // 3, HUNG_READ_S)
        self._holder: PoolHolder | None = None
        self._standstill = Standstill(clock)
        self._lease_of: dict[str, str] = {}
        self._directs = DirectTurns(book, tally)
        self._notified_late: deque[tuple[float, str]] = deque()

    # The pool.

    def bind(self, manager: Any) -> None:
        """Take part in the allocation of blocks."""
        self._holder = PoolHolder(manager)
        yield_to_need(
            manager,
            self._holder,
            block_size=self.block_size if self._divisible else None,
            settle=self._settle,
            held_blocks=self._held_blocks,
            give_up_oldest=self._give_up_oldest,
            standstill=self._standstill,
        )
        drop_before_reset(manager, self._holder, self._book, self._drop_all)

    def _held_blocks(self) -> int:
        return self._book.blocks if self._standstill.has_lasted else self._book.granted_blocks

    def _give_up_oldest(self) -> bool:
        # Claimed ones last: of direct turns that wait for blocks, each holds those of its history.
        lease = self._book.reclaim(claimed=self._standstill.has_lasted)
        if lease is None:
            return False
        self._forget(lease)
        return True

    def _drop_all(self) -> None:
        self._book.reset()
        self._settle()

    def _settle(self) -> None:
        """Drop the references of leases that have ended by the clock or by a request."""
        self._book.sweep()
        for lease in self._book.take_ended():
            self._forget(lease)
        while self._notified_late and self._notified_late[0][0] <= self._clock():
            self._reqs_not_processed.add(self._notified_late.popleft()[1])

    def _forget(self, lease: Lease) -> None:
        request_id = str(lease.handle["remote_request_id"])
        self._lease_of.pop(request_id, None)
        if lease.state == "reading":
            # NIXL's notification can still come, when P has said over HTTP that it has read, or
            # reads on after its time; the worker takes one that it does not expect for an error.
            self._notified_late.append((self._clock() + LATE_NOTIFICATION_S, request_id))
        else:
            self._reqs_not_processed.add(request_id)
        assert self._holder is not None
        self._holder.unpin(lease.pinned)  # type: ignore[arg-type]  # as `pin` gave them

    # The life of a request.

    def on_new_request(self, request: Any) -> None:
        """Check the parameters before vLLM sees them, and ask for the lease that they name."""
        self._reads.arrived(request)
        params = handle.params_of(request)
        found = self._admit(request, params) if params else None
        # Without parameters of a read for now; heartbeats begin when P has answered.
        super().on_new_request(request)
        if found is None:
            return
        if getattr(request, "abort_immediately", False):
            # The API refused the leg; this is vLLM's stand-in for it, to let P free its blocks.
            self._reader.release(found.host, found.port, found.lease, found.token)
        else:
            self._reads.ask(request, found)

    def _admit(self, request: Any, params: dict[str, Any]) -> LeaseHandle | None:
        found = None
        try:
            handle.conversation_of(params)
            leg = handle.decode_leg(params)
            if isinstance(leg, Direct):
                self._directs.begin(request.request_id, leg)
            else:
                found = leg
        except HandleError as refusal:
            self._tally.refused(refusal.reason)
            logger.debug("Computing all of %s: %s", request.request_id, refusal)
        handle.alone(params)
        return found

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """Tokens to read beyond the local ones; None while P has not answered."""
        return self._reads.tokens(request, num_computed_tokens, 1)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """The blocks of a request are its own from here on; begin the read that was promised."""
        if self._reads.begin(request, num_external_tokens) is None and request.kv_transfer_params:
            handle.alone(request.kv_transfer_params)
            self._stop_heartbeat(request.request_id)
            self._kept.forget(request.request_id)
        super().update_state_after_alloc(request, blocks, num_external_tokens)
        self._directs.end(request.request_id)

    def _keep_alive(self, read: Read) -> None:
        """Let vLLM's heartbeats keep P's blocks while the request waits for its own."""
        plan = read.plan
        assert plan is not None
        self._kept.answered(
            read.request.request_id, read.kept_until, is_renewable=plan.peer.is_renewable
        )
        params = read.request.kv_transfer_params
        handle.read_params(params, plan.peer, plan.block_ids, plan.tokens, of_prefill=True)
        super().on_new_request(read.request)

    def _begin_by(self, read: Read) -> float:
        """P keeps the blocks for a time, and for another after each heartbeat."""
        assert read.answer is not None
        margin_s = heartbeat_margin_s(read.answer.deadline_s)
        return self._kept.until(read.request.request_id) - margin_s

    def request_finished(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        """Give a lease on the blocks where vLLM would keep the request."""
        self._directs.end(request.request_id)
        params = request.kv_transfer_params
        if self._reads.forget(request):
            handle.alone(params)  # P hears of it over HTTP
        self._kept.forget(request.request_id)
        conversation = handle.conversation_of(params) if params else ""
        kept, made = super().request_finished(request, block_ids)
        if kept and made is not None and made["do_remote_decode"]:
            # Before the next build of metadata, so that the worker sets no timer of its own.
            self._reqs_need_send.pop(request.request_id, None)
            kept, made = False, self._grant(request, block_ids, made, conversation)
        self._prompts.forget(request)
        return kept, made

    def _grant(
        self,
        request: Any,
        block_ids: tuple[list[int], ...],
        made: dict[str, Any],
        conversation: str,
    ) -> dict[str, Any] | None:
        # KV of the last token is computed by the step that would follow it. The count of computed
        # tokens can be higher: steps in flight, draft tokens that were not accepted.
        tokens = min(request.num_computed_tokens, request.num_tokens - 1)
        digests = self._prompts.digests(request, tokens)
        counts = [len(ids) for ids in block_ids]
        # What a window does not need any more is gone, as of the steps that have come back.
        is_there = tokens >= request.num_computed_tokens - request.num_in_flight_tokens
        if self._divisible or (self._by_place and is_there):
            counts = [-(-tokens // self.block_size)] * len(block_ids)
        elif tokens != request.num_computed_tokens:
            digests = None  # a state is of all tokens, and of no fewer
        self._reqs_not_processed.add(request.request_id)
        if digests is None or self._holder is None or tokens < 1:
            return None
        self._reqs_not_processed.discard(request.request_id)
        self._reqs_in_batch.add(request.request_id)
        ids = self.get_exchange_clipped_blocks(
            tuple(group[:count] for group, count in zip(block_ids, counts, strict=True))
        )
        del made["remote_block_ids"]  # the lease has them, four bytes each
        lease = self._book.grant(
            id=secrets.token_hex(8),
            conversation=conversation or None,
            tokens=tokens,
            block_ids=ids,
            digests=digests,
            handle={**made, "remote_num_tokens": tokens},
            divisible=self._divisible,
            pinned=self._holder.pin(request.request_id, counts),
        )
        self._lease_of[request.request_id] = lease.id
        return handle.for_lease(lease, self._lease_port)

    # Each step.

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        """Settle before the worker is told what it may still expect."""
        self._settle()
        self._reads.poll()
        before = self._last_heartbeat_time
        meta = super().build_connector_meta(scheduler_output)
        deadlines = self._reads.take_deadlines()
        if self._last_heartbeat_time != before:
            now = self._clock()
            for request_id, deadline in self._kept.beat(now).items():
                deadlines[request_id] = deadline - now
        setattr(meta, READ_DEADLINES, deadlines)
        return meta

    def update_connector_output(self, connector_output: Any) -> None:
        """End the leases that P has read, whose requests vLLM does not know any more."""
        super().update_connector_output(connector_output)
        self._reads.ended(connector_output)
        for request_id in connector_output.finished_recving or ():
            self._kept.forget(request_id)
        sent = connector_output.finished_sending
        if not sent:
            return
        for request_id in sent:
            if (lease := self._lease_of.pop(request_id, None)) is not None:
                self._book.finish(lease, "read")
        connector_output.finished_sending = None

    def shutdown(self) -> None:
        """End the threads that ask, and wake those that watch."""
        self._reader.close()
        self._book.close()
        super().shutdown()
