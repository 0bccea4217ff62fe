"""The engine core: scheduler, KV cache and leases of one engine, without sockets or a clock.

`step` does what one step of vLLM does: expire leases, give blocks to running requests, admit
waiting ones, run the model once. What needs the network comes back in the `Step`; its result is
handed in through `read_finished`. Requests of peers arrive through the `serve_...` methods.

A request is *parked* while KV is on its way. Nothing here takes a request out of that state
except a result, so a read that was promised and never queued parks it for ever, as in vLLM.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from disaggpair_bed.simengine import decisions, tokens
from disaggpair_bed.simengine.decisions import Ending, EngineCrash, Queued, TransferSettings
from disaggpair_bed.simengine.handle import HandleMaker
from disaggpair_bed.simengine.heartbeats import Heartbeats
from disaggpair_bed.simengine.job import NotifyJob, Output, Peer, ReadJob, Request, Step
from disaggpair_bed.simengine.kvcache import KVCache
from disaggpair_bed.simengine.leases import LeaseTable
from disaggpair_bed.simengine.oracle import Oracle
from disaggpair_bed.simengine.pool import BlockPool
from disaggpair_bed.simengine.stats import Stats
from disaggpair_bed.simengine.toymodel import ToyModel, logprob


@dataclass(frozen=True)
class CoreSettings:
    """Sizes and switches of a core."""

    model: str = "toy"
    num_blocks: int = 4096
    block_size: int = 16
    max_model_len: int = 131_072
    max_batched_tokens: int = 8192
    max_sequences: int = 256
    prefix_caching: bool = True
    transfer: TransferSettings | None = None
    """None: the engine runs without a KV connector."""
    abort_during_read_crashes: bool = False


class EngineCore:
    """One engine's scheduler and cache."""

    def __init__(
        self,
        settings: CoreSettings,
        model: ToyModel,
        handles: HandleMaker,
        oracle: Oracle | None = None,
    ) -> None:
        self.settings = settings
        self.oracle = oracle or Oracle()
        self.pool = BlockPool(settings.num_blocks, settings.block_size)
        self.leases = LeaseTable()
        self.stats = Stats()
        self._transfer = settings.transfer or TransferSettings()
        self.heartbeats = Heartbeats(
            self._transfer.prefill_lease_s, enabled=handles.release.has_lease_settings
        )
        self._cache = KVCache(
            self.pool, settings.model, self.oracle, prefix_caching=settings.prefix_caching
        )
        self._model = model
        self._handles = handles
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []
        self._parked: dict[str, Request] = {}
        self._reading: set[str] = set()
        self._aborted_while_parked: dict[str, Request] = {}
        self._notifies: list[NotifyJob] = []
        self._outputs: list[Output] = []

    # What the engine takes in.

    def add(self, request: Request) -> None:
        """Queue a request."""
        if self.settings.transfer is None:
            request.params = None
        self.heartbeats.start(request.id, request.params)
        self._waiting.append(request)

    def refuse(self, params: dict[str, Any] | None) -> None:
        """A request was refused before it reached the scheduler: its peer may free.

        Raises:
            EngineCrash: the parameters want a read and do not name the peer.
        """
        if self.settings.transfer is None or params is None:
            return
        if decisions.at_finish(params, Ending.ABORTED, 0, self._transfer).notify_peer:
            self._notifies.append(_notify_job("refused", params))

    def abort(self, request_id: str, now: float) -> None:
        """The client has gone.

        Raises:
            EngineCrash: its KV is on its way and the engine does not survive that.
        """
        parked = self._parked.pop(request_id, None)
        if parked is not None:
            self._abort_parked(parked)
            return
        queues: tuple[deque[Request] | list[Request], ...] = (self._waiting, self._running)
        for queue in queues:
            for request in queue:
                if request.id == request_id:
                    queue.remove(request)
                    self._finish(request, Ending.ABORTED, now)
                    return

    def _abort_parked(self, request: Request) -> None:
        # vLLM frees these blocks when the read is reported. Without a read they are lost.
        self._aborted_while_parked[request.id] = request
        self.heartbeats.stop(request.id)
        self.leases.untrack(request.id)
        if request.id in self._reading:
            self.oracle.violation("abort_during_read", request.id)
            if self.settings.abort_during_read_crashes:
                raise EngineCrash("a request was aborted while its KV was being read")

    # What peers ask for.

    def serve_read(self, request_id: str, blocks: Sequence[int]) -> bytes:
        """Copy blocks for a peer and end the lease behind them.

        Raises:
            IndexError: a block outside the pool.
        """
        data = b"".join(self.pool.read(block) for block in blocks)
        self.oracle.read(request_id, blocks)
        self.serve_notify(request_id, read=True)
        return data

    def serve_notify(self, request_id: str, *, read: bool = False) -> None:
        """A peer is done with the blocks of a request."""
        known, lease = self.leases.notify(request_id)
        if not known:
            self.stats.late_notifications += 1
        elif lease is not None:
            self.pool.release(lease.blocks)
            self.oracle.ended(request_id, "consumed" if read else "released")

    def serve_heartbeat(self, request_ids: Sequence[str], now: float) -> None:
        """A peer still waits for the blocks of these requests."""
        self.leases.extend(request_ids, now + self._transfer.prefill_lease_s * 2 / 3)

    # Results of reads.

    def read_finished(self, request_id: str, data: bytes | None, now: float) -> None:
        """KV of a parked request has arrived; None when it could not be read."""
        self._reading.discard(request_id)
        self.heartbeats.stop(request_id)
        aborted = self._aborted_while_parked.pop(request_id, None)
        if aborted is not None:
            self._cache.free(aborted)
            return
        request = self._parked.pop(request_id)
        if data is not None:
            self._loaded(request, data)
        elif self._transfer.recompute_on_failure:
            request.computed = request.local_hit
            if request.computed == 0:
                self._cache.free(request)
        else:
            self._outputs.append(self._finish(request, Ending.ERROR, now))
            return
        self._waiting.appendleft(request)

    def _loaded(self, request: Request, data: bytes) -> None:
        self.stats.bytes_transferred.observe(len(data))
        self._cache.load(request, data)
        self._cache.verify(request, "wrong_kv_read")
        if request.computed == len(request.tokens):
            # The last token is computed again: its output is what samples the next one.
            request.computed -= 1

    # One step.

    @property
    def has_work(self) -> bool:
        """Whether a step could do something at once."""
        return bool(self._running or self._waiting or self._notifies or self._outputs)

    @property
    def running(self) -> int:
        """Requests that are being computed."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Requests that wait for blocks or for KV."""
        return len(self._waiting) + len(self._parked)

    def next_deadline(self) -> float | None:
        """When a step has something to do although nothing arrived."""
        deadlines = (self.leases.next_deadline(), self.heartbeats.next_deadline())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def step(self, now: float) -> Step:
        """Expire, schedule and compute once.

        Raises:
            EngineCrash: vLLM's core would have died.
        """
        step = Step(heartbeats=self.heartbeats.due(now))
        for lease in self.leases.expire(now):
            self.pool.release(lease.blocks)
            self.stats.expired_requests += 1
            self.oracle.ended(lease.request_id, "expired")
        budget, scheduled, preempted = self._schedule_running(self.settings.max_batched_tokens)
        if not preempted:
            scheduled += self._schedule_waiting(budget, step)
        for request, count in scheduled:
            self._run(request, count, step, now)
        step.notifies, self._notifies = self._notifies, []
        step.outputs, self._outputs = self._outputs + step.outputs, []
        return step

    def _schedule_running(self, budget: int) -> tuple[int, list[tuple[Request, int]], bool]:
        scheduled: list[tuple[Request, int]] = []
        preempted = False
        for request in tuple(self._running):
            if request not in self._running or budget == 0:
                break
            count = min(len(request.tokens) - request.computed, budget)
            while not self._cache.grow(request, request.computed + count):
                preempted = True
                victim = self._running.pop()
                self._preempt(victim)
                if victim is request:
                    break
            else:
                scheduled.append((request, count))
                budget -= count
        return budget, scheduled, preempted

    def _preempt(self, request: Request) -> None:
        self.stats.preemptions += 1
        self._cache.free(request)
        request.preempted = True
        self._waiting.appendleft(request)

    def _schedule_waiting(self, budget: int, step: Step) -> list[tuple[Request, int]]:
        scheduled = []
        while self._waiting and budget > 0 and len(self._running) < self.settings.max_sequences:
            request = self._waiting[0]
            looked_up = request.computed == 0
            external = self._look_up(request) if looked_up else 0
            count = 0 if external else min(len(request.tokens) - request.computed, budget)
            if not self._cache.grow(request, request.computed + external + count):
                if looked_up:
                    self._cache.free(request)
                break
            self._waiting.popleft()
            if looked_up:
                self._count_look_up(request, external)
            self._connect(request, external, step)
            if external:
                request.computed += external
                self._parked[request.id] = request
            else:
                self._running.append(request)
                scheduled.append((request, count))
                budget -= count
        return scheduled

    def _look_up(self, request: Request) -> int:
        self._cache.adopt_prefix(request)
        if self.settings.transfer is None or not request.reads_prefix_cache:
            return 0
        return decisions.matched_tokens(
            request.params, request.prompt_tokens, request.computed, self._transfer
        )

    def _count_look_up(self, request: Request, external: int) -> None:
        self._cache.verify(request, "wrong_kv_in_prefix_cache")
        if not request.preempted:
            request.external = external
            request.cached = request.local_hit + external
            if self.settings.transfer is not None:
                self.stats.external_queries += request.prompt_tokens - request.local_hit
                self.stats.external_hits += external

    def _connect(self, request: Request, external: int, step: Step) -> None:
        if self.settings.transfer is None or request.params is None:
            return
        if decisions.starts_tracking(request.params, self._transfer):
            self.leases.track(request.id)
        queued = decisions.after_allocation(request.params, external, self._transfer)
        if queued is Queued.NOTHING:
            return
        notify = _notify_job(request.id, request.params)
        if queued is Queued.NOTIFY:
            self._notifies.append(notify)
            return
        self._reading.add(request.id)
        step.reads.append(
            ReadJob(
                request.id,
                notify.peer,
                notify.remote_request_id,
                tuple(request.blocks[request.local_hit // self.settings.block_size :]),
                request.params["remote_block_ids"],
                request.params.get("remote_blocks_expiry_time"),
            )
        )

    # The model, and the end of a request.

    def _run(self, request: Request, count: int, step: Step, now: float) -> None:
        if request.sampled == 0:
            step.prefill_tokens += count
        else:
            step.decode_tokens += count
        self._cache.compute(request, count)
        if request.computed < len(request.tokens):
            return
        digest = self._cache.digest(request)
        if request.answer_length is None:
            request.answer_length = self._model.answer_tokens(digest)
            self._count_prompt(request)
        sampling = request.sampling
        token = self._model.sample(
            digest,
            request.sampled,
            request.answer_length,
            may_end=not sampling.ignore_eos and request.sampled >= sampling.min_tokens,
        )
        request.tokens.append(token)
        self.stats.generation_tokens += 1
        output = Output(request.id, token, logprob(digest), cached_tokens=self._cached(request))
        ending = self._ending(request, token)
        if ending is not None:
            self._running.remove(request)
            finish = self._finish(request, ending, now)
            output = replace(output, ending=ending, params=finish.params)
        step.outputs.append(output)

    def _count_prompt(self, request: Request) -> None:
        self.stats.local_cache_hit += request.cached - request.external
        self.stats.external_kv_transfer += request.external
        self.stats.local_compute += request.prompt_tokens - request.cached

    @staticmethod
    def _cached(request: Request) -> int:
        """Prompt tokens that a cache saved, P's included: what usage reports."""
        remote = (request.params or {}).get("remote_prefill_cached_tokens")
        return remote if isinstance(remote, int) else request.cached

    def _ending(self, request: Request, token: int) -> Ending | None:
        sampling = request.sampling
        if token == tokens.END_OF_TURN and not sampling.ignore_eos:
            return Ending.STOPPED
        if token in sampling.stop_token_ids and request.sampled >= sampling.min_tokens:
            return Ending.STOPPED
        if request.sampled >= sampling.max_tokens:
            return Ending.LENGTH
        return Ending.LENGTH if len(request.tokens) >= self.settings.max_model_len else None

    def _finish(self, request: Request, ending: Ending, now: float) -> Output:
        self.heartbeats.stop(request.id)
        self.stats.finished[ending.value] = self.stats.finished.get(ending.value, 0) + 1
        params = request.params
        finish = decisions.at_finish(params, ending, len(request.blocks), self._transfer)
        if finish.notify_peer and params is not None:
            self._notifies.append(_notify_job(request.id, params))
        if finish.pin_s is None:
            self.leases.untrack(request.id)
            self._cache.free(request)
            return Output(request.id, None, ending=ending)
        self._cache.forget(request)
        expiry = now + finish.pin_s
        lease = self.leases.pin(request.id, finish.role, request.blocks, expiry)
        held = -(-request.computed // self.settings.block_size)
        self.oracle.given(
            request.id,
            finish.role,
            request.computed,
            request.blocks,
            leaked=lease.deadline is None,
        )
        made = self._handles.make(
            request.id, finish.role, request.blocks[:held], request.computed, expiry, request.cached
        )
        return Output(request.id, None, ending=ending, params=made)


def _notify_job(request_id: str, params: Mapping[str, Any]) -> NotifyJob:
    """The peer that some parameters name.

    Raises:
        EngineCrash: a key is missing, which vLLM finds out by a KeyError.
    """
    try:
        peer = Peer(
            str(params["remote_engine_id"]), str(params["remote_host"]), params["remote_port"]
        )
        return NotifyJob(request_id, peer, str(params["remote_request_id"]))
    except KeyError as missing:
        raise EngineCrash(f"KeyError: {missing}") from None
