"""One engine: vLLM's core with its scheduler, our connector in both places, and its requests."""

import itertools
import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm.config import set_current_vllm_config
from vllm.sampling_params import SamplingParams
from vllm.v1.request import Request, RequestStatus

from disaggpair_connector.book import LeaseBook
from disaggpair_connector.lease import Lease
from toypair import seams
from toypair.executor import ToyCore
from toypair.model import Memory
from toypair.network import ToyReader
from toypair.shape import Role, Shape, engine_config, free_port

__all__ = ["Outcome", "Params", "Shape", "ToyEngine"]

Params = dict[str, Any]

_names = itertools.count(1)
"""Of requests; no two of a process are the same, as with a router."""


@dataclass
class Outcome:
    """What came of a request so far."""

    tokens: list[int] = field(default_factory=list)
    reason: str | None = None
    """Why it finished, as vLLM says it; None while it has not."""
    params: Params | None = None


class ToyEngine:
    """An engine and its requests.

    Args:
        role: of the pair's.
        shape: how it is set up.
    """

    def __init__(self, role: Role, shape: Shape) -> None:
        seams.install()
        self.role = role
        self.shape = shape
        self.port = free_port()
        os.environ["VLLM_NIXL_SIDE_CHANNEL_HOST"] = "127.0.0.1"
        os.environ["VLLM_NIXL_SIDE_CHANNEL_PORT"] = str(self.port)
        self.config = engine_config(role, shape, free_port())
        with set_current_vllm_config(self.config):
            self.core = ToyCore(self.config, shape)
        self.outcomes: dict[str, Outcome] = {}
        self.counted: Counter[str] = Counter()
        """What went into the reports for /metrics, added up by name."""
        self.reports: list[dict[str, Any]] = []
        """What vLLM hands on to the process that serves /metrics, in order."""

    # What it is made of.

    @property
    def scheduler(self) -> Any:
        """vLLM's scheduler."""
        return self.core.scheduler

    @property
    def half(self) -> Any:
        """Our scheduler half."""
        return self.scheduler.connector.connector_scheduler

    @property
    def worker(self) -> Any:
        """Our worker half."""
        return self.core.model_executor.connector.connector_worker

    @property
    def memory(self) -> Memory:
        """The blocks' content."""
        return self.core.model_executor.memory  # type: ignore[no-any-return]  # vLLM is not typed here

    @property
    def pool(self) -> Any:
        """vLLM's block pool."""
        return self.scheduler.kv_cache_manager.block_pool

    @property
    def reader(self) -> ToyReader:
        """Its questions to the other role."""
        return self.half._reader  # type: ignore[no-any-return]  # vLLM is not typed here

    @property
    def book(self) -> LeaseBook:
        """Its leases."""
        return self.half._book  # type: ignore[no-any-return]  # vLLM is not typed here

    @property
    def leases(self) -> dict[str, Lease]:
        """Its leases by id, as they are and not as of now."""
        return dict(self.book._table._leases)

    # Requests.

    def add(
        self,
        prompt: Sequence[int],
        params: Params | None = None,
        *,
        tokens: int = 1,
        stop: Sequence[int] = (),
        salt: str | None = None,
        is_refused: bool = False,
        name: str | None = None,
        **sampling: Any,
    ) -> str:
        """Add a request, with its parameters as they come over a wire.

        Args:
            prompt: its tokens.
            params: `kv_transfer_params`.
            tokens: how many it may say.
            stop: tokens that end it.
            salt: of its prefix.
            is_refused: whether it is the API's stand-in for one that it has refused.
            name: its id, of which a client chooses a part; one that is new if None.
            sampling: for vLLM's SamplingParams.
        """
        name = name or f"{self.role}-{next(_names)}"
        extra = {"kv_transfer_params": json.loads(json.dumps(params))} if params is not None else {}
        request = Request(
            name,
            list(prompt),
            SamplingParams(
                max_tokens=tokens,
                stop_token_ids=list(stop),
                ignore_eos=True,
                extra_args=extra,
                **sampling,
            ),
            None,
            cache_salt=salt,
            abort_immediately=is_refused,
            block_hasher=self.core.request_block_hasher,
        )
        self.core.model_executor.salts[name] = salt
        self.outcomes[name] = Outcome()
        self.core.add_request(request)
        return name

    def abort(self, *names: str) -> None:
        """Abort requests."""
        self.core.abort_requests(list(names))
        for name in names:
            self.outcomes[name].reason = self.outcomes[name].reason or "abort"

    def step(self) -> bool:
        """One turn of the engine's loop; False if it had nothing to do."""
        if not self.scheduler.has_requests() and not self.core.batch_queue:
            return False
        outputs, executed = self.core.step_fn()
        self.core.post_step(executed)
        for group in (outputs or {}).values():
            self._count(group.scheduler_stats)
            for output in group.outputs:
                outcome = self.outcomes[output.request_id]
                outcome.tokens += output.new_token_ids
                if output.finish_reason is not None:
                    outcome.reason = str(output.finish_reason)
                    # As msgpack and JSON make of it on its way.
                    outcome.params = json.loads(json.dumps(output.kv_transfer_params))
        return True

    def _count(self, stats: Any) -> None:
        if not stats or not stats.kv_connector_stats:
            return
        self.reports.append(json.loads(json.dumps(stats.kv_connector_stats)))
        for name, values in stats.kv_connector_stats.items():
            if values:
                self.counted[name.removeprefix("disaggpair:")] += sum(values)

    def run(self, *names: str, steps: int = 400) -> None:
        """Step until requests have finished, or until it is idle if none is named."""
        for _ in range(steps):
            if all(self.outcomes[name].reason for name in names) if names else False:
                return
            if not self.step():
                break
        else:
            raise AssertionError(f"{self.role} did not end in {steps} steps: {self.status()}")
        assert all(self.outcomes[name].reason for name in names), self.status()

    def settle_handshakes(self) -> None:
        """Wait for the handshakes that have begun, and for what they leave behind.

        That is done after a handshake's future has its result, by the one thread that makes them:
        it is done when that thread has taken up something else.
        """
        self.worker._handshake_initiation_executor.submit(int).result(timeout=30)

    def status(self) -> dict[str, str]:
        """Status of each request that the scheduler knows."""
        return {name: request.status.name for name, request in self.scheduler.requests.items()}

    def is_parked(self, name: str) -> bool:
        """Whether a request waits for a read."""
        request = self.scheduler.requests.get(name)
        return bool(request and request.status == RequestStatus.WAITING_FOR_REMOTE_KVS)

    def close(self) -> None:
        """End it."""
        self.worker.nixl_wrapper.close()
        self.core.model_executor.connector.shutdown()
        self.half._stop_event.set()
        self.half._nixl_handshake_listener_t = None  # it ends by itself within a second
        self.scheduler.connector.shutdown()
