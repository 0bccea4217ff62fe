"""P's scheduler half: it reads what D holds of a conversation, and lets D read what it computed.

vLLM keeps P's finished request until D has read it, for a lease that D's heartbeats renew. Beside
it stands a lease of ours on the same blocks, so that one reader can have them once, and knows which
tokens they hold; it ends with vLLM's.
"""

import secrets
import time
from collections.abc import Callable
from typing import Any, Final

from disaggpair_connector import engine, handle
from disaggpair_connector.book import LeaseBook
from disaggpair_connector.handle import HandleError, LeaseHandle
from disaggpair_connector.lease import Lease, LeaseError
from disaggpair_connector.pool import watch_need
from disaggpair_connector.prompts import Prompts
from disaggpair_connector.reader import LeaseReader
from disaggpair_connector.reads import READ_DEADLINES, Reads
from disaggpair_connector.standstill import Standstill
from disaggpair_connector.tally import Tally

logger = engine.engine_logger()

FREED_REQUESTS: Final = "disaggpair_freed_requests"
"""Attribute of the metadata to the worker: requests whose blocks nobody will read."""

_SLACK_S: Final = 1.0
"""A read is not begun with less than this left of its time."""


class PrefillScheduler(engine.NixlPullConnectorScheduler):  # type: ignore[misc]  # no types there
    """vLLM's pull scheduler on a prefill engine.

    Args:
        book: the leases on what P has computed.
        lease_port: where the book's listener serves.
        reader: asks the owners of leases.
        tally: what is counted for /metrics.
        clock: clock that never goes back.
    """

    def __init__(
        self,
        vllm_config: Any,
        engine_id: str,
        kv_cache_config: Any,
        *,
        book: LeaseBook,
        lease_port: int,
        reader: LeaseReader,
        tally: Tally,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(vllm_config, engine_id, kv_cache_config)
        self._book = book
        self._lease_port = lease_port
        self._reader = reader
        self._tally = tally
        self._prompts = Prompts(tally)
        self._divisible = engine.is_divisible(self)
        self._standstill = Standstill(clock)
        self._lease_of: dict[str, str] = {}
        self._reads = Reads(
            reader,
            tally,
            self._prompts.held_by,
            block_size=self.block_size,
            divisible=self._divisible,
            clock=clock,
            # D takes its blocks back after that, whether they have been read or not.
            begin_by=lambda read: read.kept_until - _SLACK_S,
            end_by=lambda read: read.kept_until,
            log=logger,
        )

    def bind(self, manager: Any) -> None:
        """Take note of what allocations come to."""
        watch_need(manager, self._standstill)

    def on_new_request(self, request: Any) -> None:
        """Check the parameters before vLLM sees them, and ask for the lease that they name."""
        self._reads.arrived(request)
        params = handle.params_of(request)
        found = self._admit(request, params) if params else None
        super().on_new_request(request)  # may shorten the prompt
        if found is not None:
            self._reads.ask(request, found)

    def _admit(self, request: Any, params: dict[str, Any]) -> LeaseHandle | None:
        found = None
        try:
            handle.conversation_of(params)
            found = handle.prefill_leg(params)
            if found is not None and not self.is_bidirectional_kv_xfer_enabled:
                raise HandleError("off", "bidirectional_kv_xfer is off here")
        except HandleError as refusal:
            self._tally.refused(refusal.reason)
            logger.debug("Computing all of %s: %s", request.request_id, refusal)
            found = None
        handle.first_turn(params) if params.get("do_remote_decode") else params.clear()
        return found

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """Tokens to read beyond the local ones; None while D has not answered."""
        return self._reads.tokens(request, num_computed_tokens, self.kv_recompute_threshold)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Begin the read that was promised."""
        plan = self._reads.begin(request, num_external_tokens)
        if plan is not None:
            handle.read_params(
                request.kv_transfer_params, plan.peer, plan.block_ids, plan.tokens, of_prefill=False
            )
        super().update_state_after_alloc(request, blocks, num_external_tokens)

    def request_finished(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        """Give D a lease on what vLLM keeps for it."""
        self._reads.forget(request)
        params = request.kv_transfer_params
        conversation = handle.conversation_of(params)
        kept, made = super().request_finished(request, block_ids)
        if kept and made is not None:
            made = self._grant(request, made, conversation)
        self._prompts.forget(request)
        return kept, made

    def _grant(self, request: Any, made: dict[str, Any], conversation: str) -> dict[str, Any]:
        # As on D: the count of computed tokens can be higher than that of those with KV.
        tokens = min(request.num_computed_tokens, request.num_tokens - 1)
        is_whole = tokens == request.num_computed_tokens
        held = self._prompts.digests(request, tokens) if self._divisible or is_whole else None
        if held is None:  # D finds no lease in the parameters, and computes the prompt
            return made
        made["remote_num_tokens"] = tokens
        block_ids = made.pop("remote_block_ids")
        if self._divisible:
            block_ids = [group[: -(-tokens // self.block_size)] for group in block_ids]
        lease = self._book.grant(
            id=secrets.token_hex(8),
            conversation=conversation or None,
            tokens=held.tokens,
            block_ids=block_ids,
            digests=held,
            handle=made,
            divisible=self._divisible,
            pinned=None,
        )
        self._lease_of[request.request_id] = lease.id
        return handle.for_lease(lease, self._lease_port)

    def update_connector_output(self, connector_output: Any) -> None:
        """End the leases whose requests vLLM frees, and tell D how reads ended."""
        super().update_connector_output(connector_output)
        self._reads.ended(connector_output)
        for request_id in connector_output.finished_sending or ():
            lease = self._lease_of.pop(request_id, None)
            if lease is not None and not self._book.finish(lease, "read"):
                self._end_unread(lease)

    def _end_unread(self, lease: str) -> None:
        try:
            self._book.release(lease)
        except LeaseError:  # it has ended by itself meanwhile
            return

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        """Tell the worker how long each new read may take, and what nobody will read."""
        self._reads.poll()
        if self._standstill.has_lasted:
            self._standstill.restart()
            self._reads.give_back_half()
        meta = super().build_connector_meta(scheduler_output)
        setattr(meta, READ_DEADLINES, self._reads.take_deadlines())
        setattr(meta, FREED_REQUESTS, self._freed())
        return meta

    def _freed(self) -> set[str]:
        """Requests whose lease D gave back or did not take in time."""
        self._book.sweep()
        # After a read NIXL's notification frees them, and the worker takes a second for an error.
        return {
            request_id
            for lease in self._book.take_ended()
            if (request_id := self._request_of(lease)) is not None and lease.ended != "read"
        }

    def _request_of(self, lease: Lease) -> str | None:
        request_id = str(lease.handle["remote_request_id"])
        return request_id if self._lease_of.pop(request_id, None) is not None else None

    def shutdown(self) -> None:
        """End the threads that ask, and wake those that watch."""
        self._reader.close()
        self._book.close()
        super().shutdown()
