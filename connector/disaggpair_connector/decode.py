"""D's scheduler half: leases on what it holds, and offers of P that are checked before a read.

A request that ends with a lease is over for vLLM: its blocks are kept by references of ours, so
an engine that only holds leases has no request, and neither steps nor waits in a loop. P's
notification that it has read comes through vLLM's worker, which has to be told which request ids
are still expected (`_reqs_in_batch`) and which are not (`_reqs_not_processed`).
"""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from disaggpair_connector import engine, handle
from disaggpair_connector.book import LeaseBook
from disaggpair_connector.handle import Direct, HandleError, Offer
from disaggpair_connector.pool import PoolHolder, drop_before_reset, yield_to_need
from disaggpair_connector.prompts import Prompts
from disaggpair_connector.table import Lease, LeaseError
from disaggpair_connector.tally import Tally

logger = engine.engine_logger()

LATE_MARGIN_S: Final = 5.0
"""An offer with less than this left of P's lease is not read; P's and D's clocks differ too."""

_REMEMBERED_OFFERS: Final = 65_536


class DecodeScheduler(engine.NixlPullConnectorScheduler):  # type: ignore[misc]  # no types there
    """vLLM's pull scheduler on a decode engine.

    Args:
        book: the leases of this engine.
        tally: what is counted for /metrics.
        lease_port: where the book's listener serves.
        wall: clock of unix seconds.
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
        wall: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(vllm_config, engine_id, kv_cache_config)
        self._book = book
        self._tally = tally
        self._lease_port = lease_port
        self._wall = wall
        self._prompts = Prompts(tally)
        self._holder: PoolHolder | None = None
        self._lease_of: dict[str, str] = {}
        self._direct: dict[str, str] = {}
        self._read_offers: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._divisible = engine.is_divisible(self)

    # The pool.

    def bind(self, manager: Any) -> None:
        """Take part in the allocation of blocks."""
        self._holder = PoolHolder(manager)
        yield_to_need(
            manager,
            self._holder,
            block_size=self.block_size if self._divisible else None,
            settle=self._settle,
            held_blocks=lambda: self._book.granted_blocks,
            give_up_oldest=self._give_up_oldest,
        )
        drop_before_reset(manager, self._drop_all)

    def _give_up_oldest(self) -> bool:
        lease = self._book.reclaim()
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

    def _forget(self, lease: Lease) -> None:
        request_id = str(lease.handle["remote_request_id"])
        self._lease_of.pop(request_id, None)
        # The worker expects no notification any more; after one it has forgotten by itself.
        self._reqs_not_processed.add(request_id)
        assert self._holder is not None
        self._holder.unpin(lease.pinned)  # type: ignore[arg-type]  # as `pin` gave them

    # The life of a request.

    def on_new_request(self, request: Any) -> None:
        """Check the parameters before vLLM sees them."""
        if request.kv_transfer_params:
            self._admit(request, request.kv_transfer_params)
        super().on_new_request(request)

    def _admit(self, request: Any, params: dict[str, Any]) -> None:
        try:
            handle.conversation_of(params)
            leg = handle.decode_leg(params)
            if isinstance(leg, Direct):
                handle.alone(params)
                self._protect(request.request_id, leg)
            else:
                # One that the API refused (vLLM's own stand-in for it, with another prompt) reads
                # nothing, and only lets P free the blocks.
                if not getattr(request, "abort_immediately", False):
                    self._check(request, leg)
                self._use_up(leg)
                handle.offered(params, leg)
        except HandleError as refusal:
            # P is not told: its blocks may be another request's to read, and lapse by themselves.
            self._tally.refused(refusal.reason)
            logger.debug("Computing %s here: %s", request.request_id, refusal)
            handle.alone(params)

    def _check(self, request: Any, offer: Offer) -> None:
        """Raise HandleError unless the offer's blocks hold this prompt's tokens."""
        left = offer.issued + offer.lease_s - self._wall()
        if not LATE_MARGIN_S <= left <= offer.lease_s + LATE_MARGIN_S:
            raise HandleError("late", f"P's lease has {left:.1f} s left")
        if offer.tokens != self._get_remote_prefill_token_count(request.num_prompt_tokens):
            raise HandleError("tokens", f"{offer.tokens} tokens were offered")
        blocks = -(-offer.tokens // offer.block_size)
        if self._divisible and any(len(group) != blocks for group in offer.block_ids):
            raise HandleError("malformed", f"remote_block_ids has not {blocks} blocks")
        held = self._prompts.digests(request, offer.tokens)
        if held is None:
            raise HandleError("prompt", "the prompt is not made of token ids")
        digest = handle.offer_digest(held, offer.peer, offer.block_ids, offer.block_size)
        if not secrets.compare_digest(digest, offer.digest):
            raise HandleError("tokens", "the blocks were offered for other tokens")

    def _use_up(self, offer: Offer) -> None:
        """Raise HandleError for a second request with one offer: a sibling of `n` above 1, a retry.

        The first one's read ends P's lease, and the second one's would free what the first reads.
        """
        name = (offer.peer.engine_id, offer.peer.request_id)
        if name in self._read_offers:
            raise HandleError("used", "the blocks were offered to an earlier request")
        self._read_offers[name] = None
        if len(self._read_offers) > _REMEMBERED_OFFERS:
            self._read_offers.popitem(last=False)

    def _protect(self, request_id: str, leg: Direct) -> None:
        """Keep the lease of a direct turn's history until the turn has its blocks."""
        if leg.lease is None or leg.token is None:
            return
        try:
            self._book.redeem_direct(leg.lease, leg.token)
        except LeaseError as error:
            self._tally.refused(error.code)
            return
        self._direct[request_id] = leg.lease

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """The blocks of a request are its own from here on."""
        super().update_state_after_alloc(request, blocks, num_external_tokens)
        self._tally.verified(num_external_tokens)
        self._end_direct(request.request_id)

    def _end_direct(self, request_id: str) -> None:
        if (lease := self._direct.pop(request_id, None)) is not None:
            self._book.finish(lease, "direct")

    def request_finished(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        """Give a lease on the blocks where vLLM would keep the request."""
        self._end_direct(request.request_id)
        params = request.kv_transfer_params
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
        if self._divisible:
            counts = [-(-tokens // self.block_size)] * len(block_ids)
        elif tokens != request.num_computed_tokens:
            digests = None  # which block of a window or a state belongs to fewer tokens is not said
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
        return super().build_connector_meta(scheduler_output)

    def update_connector_output(self, connector_output: Any) -> None:
        """End the leases that P has read, whose requests vLLM does not know any more."""
        super().update_connector_output(connector_output)
        sent = connector_output.finished_sending
        if not sent:
            return
        for request_id in sent:
            if (lease := self._lease_of.pop(request_id, None)) is not None:
                self._book.finish(lease, "read")
        connector_output.finished_sending = None

    def shutdown(self) -> None:
        """End the leases with the engine."""
        self._book.close()
        super().shutdown()
