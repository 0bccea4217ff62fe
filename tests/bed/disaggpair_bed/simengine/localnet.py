"""Cores joined by function calls and a hand-set clock: the engine without an event loop.

Reads happen between steps, in the order in which they were asked for. For tests of what the core
decides; `engine` and `sidechannel` do the same over sockets.
"""

from array import array
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from disaggpair_bed.simengine import decisions
from disaggpair_bed.simengine.connector import MakeConnector, PullConnector
from disaggpair_bed.simengine.core import EngineCore
from disaggpair_bed.simengine.coresettings import CoreSettings
from disaggpair_bed.simengine.decisions import Ending, TransferSettings
from disaggpair_bed.simengine.decodeconnector import DecodeConnector
from disaggpair_bed.simengine.handle import HandleMaker
from disaggpair_bed.simengine.identity import Adapter
from disaggpair_bed.simengine.job import Output, ReadJob, Request, Sampling, Step
from disaggpair_bed.simengine.leaseterms import decode_terms, prefill_terms
from disaggpair_bed.simengine.localleases import LEASE_PORT, LocalOwner, LocalReader
from disaggpair_bed.simengine.oracle import Oracle
from disaggpair_bed.simengine.pairconnector import PairConnector
from disaggpair_bed.simengine.prefillconnector import PrefillConnector
from disaggpair_bed.simengine.release import Release
from disaggpair_bed.simengine.toymodel import ToyModel
from disaggpair_connector.book import LeaseBook

RELEASE = Release.parse("0.33.0")
CLAIM_S = READ_S = 30.0


@dataclass
class Result:
    """What became of one request."""

    tokens: list[int] = field(default_factory=list)
    ending: Ending | None = None
    """None while it runs or hangs."""
    params: dict[str, Any] | None = None
    cached_tokens: int = 0


class LocalNet:
    """Engines by their ids, at one time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.cores: dict[str, EngineCore] = {}
        self.owners: dict[str, LocalOwner] = {}
        self.results: dict[str, Result] = {}
        self.held: list[tuple[EngineCore, ReadJob]] = []
        """Reads that wait while `hold_reads` is set."""
        self.hold_reads = False
        self.hold_answers = False
        """Answers of the owners of leases do not come."""
        self._next_id = 0

    def engine(
        self,
        engine_id: str,
        transfer: TransferSettings | None = None,
        *,
        connected: bool = True,
        pair: Literal["prefill", "decode"] | None = None,
        **settings: Any,
    ) -> EngineCore:
        """Start an engine, without a connector if not `connected`; replaces one of the same id.

        With a role in a `pair` it has our connector instead of vLLM's own.
        """
        transfer = transfer or TransferSettings(
            bidirectional=True, recompute_on_failure=pair == "prefill"
        )
        core = EngineCore(
            CoreSettings(transfer=transfer if connected else None, **settings),
            ToyModel(),
            HandleMaker(RELEASE, engine_id, engine_id, 5600),
            Oracle(enabled=True),
            self._make_connector(engine_id, pair, transfer, settings.get("block_size", 16)),
        )
        if isinstance(core.connector, PairConnector):
            core.connector.lease_port = LEASE_PORT
        self.cores[engine_id] = core
        return core

    def _make_connector(
        self, engine_id: str, pair: str | None, transfer: TransferSettings, block_size: int
    ) -> MakeConnector:
        def clock() -> float:
            return self.now

        if pair is None:
            return PullConnector
        terms = (
            decode_terms(transfer.decode_ttl_s, READ_S)
            if pair == "decode"
            else prefill_terms(transfer.prefill_lease_s)
        )
        book = LeaseBook(
            epoch="",
            ttl_s=terms.ttl_s,
            claim_s=CLAIM_S,
            read_s=terms.kept_s,
            clock=clock,
            wall_clock=clock,
        )
        self.owners[engine_id] = LocalOwner(book, block_size, terms.read_s)
        return partial(
            DecodeConnector if pair == "decode" else PrefillConnector,
            book=book,
            reader=LocalReader(self._owner_of, lambda: not self.hold_answers),
            clock=clock,
        )

    def _owner_of(self, host: str) -> LocalOwner | None:
        return self.owners.get(host) if host in self.cores else None

    def submit(
        self,
        core: EngineCore,
        prompt: "array[int]",
        params: dict[str, Any] | None = None,
        *,
        max_tokens: int = 20,
        salt: str = "",
        adapter: Adapter | None = None,
        tenant: str = "",
        reads_prefix_cache: bool = True,
    ) -> str:
        """Queue a request that ends by its length; returns its id."""
        self._next_id += 1
        request_id = f"request-{self._next_id}"
        sampling = Sampling(max_tokens=max_tokens, ignore_eos=True)
        self.results[request_id] = Result()
        core.add(
            Request(
                id=request_id,
                prompt_tokens=len(prompt),
                tokens=prompt[:],
                sampling=sampling,
                params=dict(params) if params is not None else None,
                salt=salt,
                lora_request=adapter,
                tenant=tenant,
                reads_prefix_cache=reads_prefix_cache,
            )
        )
        return request_id

    def ask(self, core: EngineCore, prompt: "array[int]", *arguments: Any, **more: Any) -> Result:
        """Queue a request and run until nothing moves any more."""
        request_id = self.submit(core, prompt, *arguments, **more)
        self.run()
        return self.results[request_id]

    def run(self) -> None:
        """Step every engine until nothing moves at this time.

        Raises:
            EngineCrash: an engine died.
        """
        moving = True
        while moving:
            moving = False
            for core in tuple(self.cores.values()):
                moving = self._take(core, core.step(self.now)) or moving

    def pass_time(self, seconds: float) -> None:
        """Let time pass without heartbeats, then run."""
        self.now += seconds
        self.run()

    def release_reads(self) -> None:
        """Let the reads go that were held."""
        self.hold_reads = False
        held, self.held = self.held, []
        for core, job in held:
            core.read_finished(job.request_id, self._read(core, job), self.now)
        self.run()

    def _take(self, core: EngineCore, step: Step) -> bool:
        for output in step.outputs:
            self._collect(output)
        for job in step.reads:
            if self.hold_reads:
                self.held.append((core, job))
            else:
                core.read_finished(job.request_id, self._read(core, job), self.now)
        for notify in step.notifies:
            if owner := self.cores.get(notify.peer.engine_id):
                owner.connector.serve_notify(notify.remote_request_id)
        for beat in step.heartbeats:
            if owner := self.cores.get(beat.peer.engine_id):
                owner.connector.serve_heartbeat(beat.request_ids, self.now)
        return bool(step.computed or step.outputs or step.reads or step.notifies)

    def _collect(self, output: Output) -> None:
        result = self.results[output.request_id]
        if output.token is not None:
            result.tokens.append(output.token)
        if output.ending is not None:
            result.ending = output.ending
            result.params = output.params
            result.cached_tokens = output.cached_tokens

    def _read(self, core: EngineCore, job: ReadJob) -> bytes | None:
        owner = self.cores.get(job.peer.engine_id)
        if owner is None or decisions.is_expired(job.expiry, 0.0, self.now):
            return None
        if core.connector.is_late(job.request_id, self.now):
            return None
        blocks = decisions.paired_blocks(job.local_blocks, job.remote_block_ids)
        try:
            return owner.connector.serve_read(job.remote_request_id, blocks, job.identity)
        except IndexError:
            return None
