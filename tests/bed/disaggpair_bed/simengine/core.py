"""The engine core: scheduler and KV cache of one engine, without sockets or a clock.

`step` does what one step of vLLM does: expire leases, give blocks to running requests, admit
waiting ones, run the model once. What needs the network comes back in the `Step`; the result of a
read is handed in through `read_finished`.

A request is *parked* while KV is on its way. Nothing here takes a request out of that state
except a result, so a read that was promised and never queued parks it for ever, as in vLLM.
"""

from dataclasses import replace
from typing import Any

from disaggpair_bed.simengine.admission import Admission
from disaggpair_bed.simengine.connector import MakeConnector, PullConnector
from disaggpair_bed.simengine.coresettings import CoreSettings
from disaggpair_bed.simengine.decisions import Ending, EngineCrash, TransferSettings
from disaggpair_bed.simengine.handle import HandleMaker
from disaggpair_bed.simengine.job import Output, Request, Step
from disaggpair_bed.simengine.kvcache import KVCache
from disaggpair_bed.simengine.oracle import Oracle
from disaggpair_bed.simengine.pool import BlockPool
from disaggpair_bed.simengine.queues import Queues
from disaggpair_bed.simengine.stats import Stats
from disaggpair_bed.simengine.toymodel import ToyModel, logprob


class EngineCore:
    """One engine's scheduler and cache."""

    def __init__(
        self,
        settings: CoreSettings,
        model: ToyModel,
        handles: HandleMaker,
        oracle: Oracle | None = None,
        make_connector: MakeConnector = PullConnector,
    ) -> None:
        self.settings = settings
        self.oracle = oracle or Oracle()
        self.stats = Stats()
        self.pool = BlockPool(settings.num_blocks, settings.block_size)
        self._transfer = settings.transfer or TransferSettings()
        self.connector = make_connector(self._transfer, self.pool, handles, self.stats, self.oracle)
        self.cache = KVCache(
            self.pool, settings.model, self.oracle, prefix_caching=settings.prefix_caching
        )
        self._model = model
        self.queues = Queues()
        self.takes_new = True
        """Whether requests that wait are begun; not while the engine goes to sleep."""
        self._blocks = Admission(self.cache, self.connector, self.queues)
        self._ended: list[Output] = []

    # Intake and results.

    def add(self, request: Request) -> None:
        """Queue a request; without a connector its transfer parameters are ignored."""
        if self.settings.transfer is None:
            request.params = None
        self.connector.arrived(request)
        self.queues.waiting.append(request)

    def refuse(self, params: dict[str, Any]) -> None:
        """The API refused a request with these transfer parameters.

        Raises:
            EngineCrash: its peer has to be told and is not named.
        """
        if self.settings.transfer is not None:
            self.connector.refused(params)

    def abort(self, request_id: str, now: float) -> None:
        """The client has gone; nothing happens when the request is over.

        Raises:
            EngineCrash: the engine does not survive this abort.
        """
        parked = self.queues.parked.pop(request_id, None)
        if parked is not None:
            self._abort_parked(parked)
            return
        request = self.queues.take(request_id)
        if request is not None:
            self._finish(request, Ending.ABORTED, now)

    def _abort_parked(self, request: Request) -> None:
        # vLLM frees these blocks when the read is reported. Without a read they are lost.
        self.queues.aborted_while_parked[request.id] = request
        self.connector.aborted_while_parked(request)
        if request.id in self.queues.reading:
            self.oracle.violation("abort_during_read", request.id)
            if self.settings.abort_during_read_crashes:
                raise EngineCrash("a request was aborted while its KV was being read")

    def read_finished(self, request_id: str, data: bytes | None, now: float) -> None:
        """KV of a parked request has arrived; None when it could not be read."""
        self.queues.reading.discard(request_id)
        data = self.connector.received(request_id, data, now)
        aborted = self.queues.aborted_while_parked.pop(request_id, None)
        if aborted is not None:
            self.cache.free(aborted)
            return
        request = self.queues.parked.pop(request_id)
        if data is not None:
            self._loaded(request, data)
        elif self._transfer.recompute_on_failure:
            request.computed = request.local_hit
            if request.computed == 0:
                self.cache.free(request)
        else:
            self._ended.append(self._finish(request, Ending.ERROR, now))
            return
        self.queues.waiting.appendleft(request)

    def _loaded(self, request: Request, data: bytes) -> None:
        self.stats.bytes_transferred.observe(len(data))
        self.cache.load(request, data)
        self.cache.verify(request, "wrong_kv_read")
        if request.computed == len(request.tokens):
            # The last token is computed again: its output is what samples the next one.
            request.computed -= 1

    @property
    def is_drained(self) -> bool:
        """Whether nobody would miss the memory: no read is under way, here or from here."""
        return not (self.queues.reading or self.connector.is_read_from)

    def reset_prefix_cache(self) -> None:
        """Forget the prefix cache, and the leases with it."""
        self.connector.reset()
        self.pool.reset_prefix_cache()

    # State.

    @property
    def running(self) -> int:
        """Requests that are being computed."""
        return len(self.queues.running)

    @property
    def waiting(self) -> int:
        """Requests that wait for blocks or for KV."""
        return len(self.queues.waiting) + len(self.queues.parked)

    @property
    def reading(self) -> int:
        """Requests whose KV is on its way."""
        return len(self.queues.reading)

    @property
    def must_poll(self) -> bool:
        """Whether the next step may go on although nothing arrived."""
        return bool(self.queues.waiting) and self.connector.must_poll

    def next_deadline(self) -> float | None:
        """When a step has something to do although nothing arrived."""
        return self.connector.next_deadline()

    # One step.

    def step(self, now: float) -> Step:
        """Expire, schedule and compute once.

        Raises:
            EngineCrash: vLLM's core would have died.
        """
        step = Step(heartbeats=self.connector.heartbeats.due(now))
        self.connector.expire(now)
        budget, scheduled, preempted = self._schedule_running(self.settings.max_batched_tokens)
        if not preempted and self.takes_new:
            scheduled += self._schedule_waiting(budget)
        for request, count in scheduled:
            self._run(request, count, step, now)
        step.reads, step.notifies = self.connector.take_jobs()
        self.queues.reading.update(job.request_id for job in step.reads)
        step.outputs, self._ended = self._ended + step.outputs, []
        return step

    def _schedule_running(self, budget: int) -> tuple[int, list[tuple[Request, int]], bool]:
        scheduled: list[tuple[Request, int]] = []
        preempted = False
        for request in tuple(self.queues.running):
            if request not in self.queues.running or budget == 0:
                break
            count = min(len(request.tokens) - request.computed, budget)
            while not self._blocks.grow(request, request.computed + count):
                preempted = True
                victim = self.queues.running.pop()
                self._preempt(victim)
                if victim is request:
                    break
            else:
                scheduled.append((request, count))
                budget -= count
        return budget, scheduled, preempted

    def _preempt(self, request: Request) -> None:
        self.stats.preemptions += 1
        self.cache.free(request)
        request.preempted = True
        self.queues.waiting.appendleft(request)

    def _schedule_waiting(self, budget: int) -> list[tuple[Request, int]]:
        scheduled = []
        skipped: list[Request] = []
        waiting, running = self.queues.waiting, self.queues.running
        while waiting and budget > 0 and len(running) < self.settings.max_sequences:
            request = waiting[0]
            looks_up = request.computed == 0
            external = self._look_up(request) if looks_up else 0
            if external is None:
                self.cache.free(request)
                skipped.append(waiting.popleft())
                continue
            count = 0 if external else min(len(request.tokens) - request.computed, budget)
            positions = request.computed + external + count
            if not self._blocks.admit(request, positions, reads=external > 0):
                if looks_up:
                    self.cache.free(request)
                break
            waiting.popleft()
            if looks_up:
                self._count_look_up(request, external)
            if self.settings.transfer is not None:
                self.connector.allocated(request, external)
            if external:
                request.computed += external
                self.queues.parked[request.id] = request
            else:
                running.append(request)
                scheduled.append((request, count))
                budget -= count
        waiting.extendleft(reversed(skipped))
        return scheduled

    def _look_up(self, request: Request) -> int | None:
        """Adopt the local prefix; returns the tokens that a peer has beyond it, None: not yet."""
        self.cache.adopt_prefix(request)
        if self.settings.transfer is None or not request.reads_prefix_cache:
            return 0
        return self.connector.matched_tokens(request)

    def _count_look_up(self, request: Request, external: int) -> None:
        self.cache.verify(request, "wrong_kv_in_prefix_cache")
        if request.preempted:
            return
        request.external = external
        request.cached = request.local_hit + external
        if self.settings.transfer is not None:
            self.stats.external_queries += request.prompt_tokens - request.local_hit
            self.stats.external_hits += external

    # The model, and the end of a request.

    def _run(self, request: Request, count: int, step: Step, now: float) -> None:
        if request.sampled == 0:
            step.prefill_tokens += count
            step.attended += count * request.computed + count * (count - 1) // 2
        else:
            step.decode_tokens += count
        self.cache.compute(request, count)
        if request.computed < len(request.tokens):
            return
        token, digest = self._sample(request)
        self.stats.generation_tokens += 1
        output = Output(request.id, token, logprob(digest), cached_tokens=request.reported_cached)
        ending = request.ending_after(token, self.settings.max_model_len)
        if ending is not None:
            self.queues.running.remove(request)
            output = replace(
                output, ending=ending, params=self._finish(request, ending, now).params
            )
        step.outputs.append(output)

    def _sample(self, request: Request) -> tuple[int, int]:
        digest = self.cache.digest(request)
        model = self._model
        if request.thinking is not None:
            model = replace(model, thinking=request.thinking)
        if request.answer_length is None:
            request.answer_length = model.answer_tokens(digest)
            self.stats.prompt(request.prompt_tokens, request.cached, request.external)
        sampling = request.sampling
        may_end = not sampling.ignore_eos and request.sampled >= sampling.min_tokens
        token = model.sample(digest, request.sampled, request.answer_length, may_end=may_end)
        request.tokens.append(token)
        return token, digest

    def _finish(self, request: Request, ending: Ending, now: float) -> Output:
        self.stats.finished[ending.value] = self.stats.finished.get(ending.value, 0) + 1
        pinned, params = self.connector.finished(request, ending, now)
        if pinned:
            self.cache.forget(request)
        else:
            self.cache.free(request)
        return Output(request.id, None, ending=ending, params=params)
