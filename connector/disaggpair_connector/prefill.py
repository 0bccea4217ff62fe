"""P's scheduler half: what D is said to hold is compared before it is read, and offers to D.

D's handle names a lease. P asks the lease's owner, which from then on keeps the blocks for this
one read and says which tokens they hold; P reads the blocks of the tokens that its own prompt
begins with. Whatever the router sent (a used handle, another conversation's, one of a D that has
restarted), no block is read that does not hold the right token: it is computed.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from disaggpair_connector import contract, engine, handle
from disaggpair_connector.handle import HandleError, LeaseHandle, Refusal
from disaggpair_connector.prompts import Prompts
from disaggpair_connector.reader import LeaseReader, Ticket
from disaggpair_connector.tally import Tally
from disaggpair_connector.transfer_plan import Readable, plan_read
from disaggpair_connector.wire import Declined, ReadAnswer

logger = engine.engine_logger()

READ_DEADLINES: Final = "disaggpair_read_seconds"
"""Attribute of the metadata to the worker: seconds that each new read may take."""

_SLACK_S: Final = 1.0
"""A read is not begun with less than this left of its time."""


@dataclass(slots=True)
class _Read:
    """A read from D, from the question on."""

    handle: LeaseHandle
    ticket: Ticket
    asked: float
    plan: Readable | None = None
    deadline: float = 0.0
    is_begun: bool = False


class PrefillScheduler(engine.NixlPullConnectorScheduler):  # type: ignore[misc]  # no types there
    """vLLM's pull scheduler on a prefill engine.

    Args:
        reader: asks the owners of leases.
        tally: what is counted for /metrics.
        wall: clock of unix seconds, which D compares with its own.
        clock: clock of the seconds that a read takes.
    """

    def __init__(
        self,
        vllm_config: Any,
        engine_id: str,
        kv_cache_config: Any,
        *,
        reader: LeaseReader,
        tally: Tally,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(vllm_config, engine_id, kv_cache_config)
        self._reader = reader
        self._tally = tally
        self._wall = wall
        self._clock = clock
        self._prompts = Prompts(tally)
        self._reads: dict[str, _Read] = {}
        self._new_deadlines: dict[str, float] = {}
        self._divisible = engine.is_divisible(self)

    def on_new_request(self, request: Any) -> None:
        """Check the parameters before vLLM sees them, and ask for the lease that they name."""
        params = request.kv_transfer_params
        if params:
            if (found := self._admit(request, params)) is not None:
                self._ask(request, found)
            handle.first_turn(params) if params.get("do_remote_decode") else params.clear()
        super().on_new_request(request)

    def _admit(self, request: Any, params: dict[str, Any]) -> LeaseHandle | None:
        try:
            handle.conversation_of(params)
            found = handle.prefill_leg(params)
        except HandleError as refusal:
            self._refuse(request, refusal.reason)
            return None
        if found is not None and not self.is_bidirectional_kv_xfer_enabled:
            self._refuse(request, "off")
            return None
        return found

    def _ask(self, request: Any, found: LeaseHandle) -> None:
        where = (found.host, found.port, found.lease, found.token)
        if found.is_release:
            self._reader.release(*where)
            return
        self._reads[request.request_id] = _Read(found, self._reader.ask(*where), self._clock())

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """Tokens to read beyond the local ones; None while D has not answered."""
        read = self._reads.get(request.request_id)
        if read is None:
            none: tuple[int, bool] = (0, False)
            return none
        if read.is_begun:
            # Asked again: the read failed, or the request was preempted. To promise the tokens a
            # second time would park it for ever, since no second read is queued (vLLM 0.32).
            self._drop(request, "failed")
            return 0, False
        if read.plan is None:
            if not read.ticket.done():
                return None, False
            if not self._settle(request, read, read.ticket.result()):
                return 0, False
        assert read.plan is not None
        tokens = min(read.plan.tokens, request.num_prompt_tokens) - num_computed_tokens
        if self._clock() > read.deadline - _SLACK_S:
            self._drop(request, "late")
        elif tokens < max(1, self.kv_recompute_threshold):
            self._drop(request, "short")
        else:
            return tokens, True
        return 0, False

    def _settle(self, request: Any, read: _Read, answer: ReadAnswer | Declined) -> bool:
        """Take D's answer in; False if nothing is to be read."""
        if isinstance(answer, Declined):
            del self._reads[request.request_id]
            self._refuse(request, answer.reason)
            return False
        read.deadline = read.asked + answer.deadline_s
        proven = self._prompts.held_by(request, answer.digests)
        read.plan = plan_read(proven, answer, block_size=self.block_size, divisible=self._divisible)
        if read.plan is None:
            self._drop(request, "tokens")
        return read.plan is not None

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Begin the read that was promised."""
        read = self._reads.get(request.request_id)
        if read is not None and not read.is_begun and read.plan is not None:
            if num_external_tokens > 0:
                read.is_begun = True
                self._new_deadlines[request.request_id] = read.deadline
                self._tally.verified(num_external_tokens)
                handle.read_params(
                    request.kv_transfer_params,
                    read.plan.peer,
                    read.plan.block_ids,
                    read.plan.tokens,
                )
            else:  # vLLM computes all of the prompt, as it does for prompt logprobs
                self._drop(request, "short")
        super().update_state_after_alloc(request, blocks, num_external_tokens)

    def request_finished(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        """Add to vLLM's parameters what D compares before it reads."""
        read = self._reads.pop(request.request_id, None)
        if read is not None and not read.is_begun:
            read.ticket.cancel()
        kept, made = super().request_finished(request, block_ids)
        if kept and made is not None:
            self._offer(request, made)
        self._prompts.forget(request)
        return kept, made

    def _offer(self, request: Any, made: dict[str, Any]) -> None:
        held = self._prompts.digests(request, made["remote_num_tokens"])
        ours: dict[str, Any] = {}
        if conversation := handle.conversation_of(request.kv_transfer_params):
            ours["conversation"] = conversation
        if held is not None:
            blocks = [list(group) for group in made["remote_block_ids"]]
            peer = handle.peer_of(made)
            ours.update(
                digest=handle.offer_digest(held, peer, blocks, self.block_size),
                tokens=held.tokens,
                block_size=self.block_size,
                issued=self._wall(),
                lease_s=self._kv_lease_duration,
            )
        made[contract.PAIR_PARAMS] = ours

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        """Tell the worker how long each new read may take."""
        meta = super().build_connector_meta(scheduler_output)
        now = self._clock()
        setattr(
            meta,
            READ_DEADLINES,
            {request: deadline - now for request, deadline in self._new_deadlines.items()},
        )
        self._new_deadlines.clear()
        return meta

    def shutdown(self) -> None:
        """End the threads that ask."""
        self._reader.close()
        super().shutdown()

    def _drop(self, request: Any, reason: Refusal) -> None:
        """Give the lease back; D frees its blocks at once instead of at the deadline."""
        read = self._reads.pop(request.request_id)
        found = read.handle
        self._reader.release(found.host, found.port, found.lease, found.token)
        self._refuse(request, reason)

    def _refuse(self, request: Any, reason: Refusal) -> None:
        self._tally.refused(reason)
        logger.debug("Computing all of %s: %s", request.request_id, reason)
