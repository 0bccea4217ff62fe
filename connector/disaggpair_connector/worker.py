"""The worker half: reads that are in time, and a handshake that says how the peer is set up.

Checked in vLLM 0.31.0 to 0.33.0: `_pop_done_transfers` is the one place where the end of a read
is seen, and a request that it names as failed is reported as such and computed again.
"""

import time
from typing import Any

from disaggpair_connector import engine
from disaggpair_connector.digest import CHUNK_TOKENS
from disaggpair_connector.metrics import PairStats
from disaggpair_connector.prefill import FREED_REQUESTS
from disaggpair_connector.reads import READ_DEADLINES
from disaggpair_connector.settings import Settings

logger = engine.engine_logger()

WIRE = 1
"""Version of the protocol between the halves of P and D."""


def compatibility_suffix(settings: Settings) -> str:
    """What both roles must have in common besides vLLM's own factors, as text.

    It stands in the hash that vLLM compares and prints at a mismatch, so the message names it.
    """
    bidirectional = "on" if settings.bidirectional else "off"
    return f"+disaggpair/{WIRE},bidirectional={bidirectional},chunk={CHUNK_TOKENS}"


class PairWorker(engine.NixlPullConnectorWorker):  # type: ignore[misc]  # vLLM has no types here
    """vLLM's pull worker on either role."""

    def __init__(
        self, vllm_config: Any, engine_id: str, kv_cache_config: Any, *, settings: Settings
    ) -> None:
        super().__init__(vllm_config, engine_id, kv_cache_config)
        self.xfer_stats = PairStats()
        self._suffix = compatibility_suffix(settings)
        self._read_deadlines: dict[str, float] = {}
        self._freed: set[str] = set()

    def register_kv_caches(self, kv_caches: Any) -> None:
        """Register, and let the handshake compare the settings of both roles."""
        super().register_kv_caches(kv_caches)
        if not self.compat_hash.endswith(self._suffix):
            self.compat_hash += self._suffix
        if self.xfer_handshake_metadata is not None:
            self.xfer_handshake_metadata.compatibility_hash = self.compat_hash

    def start_load_kv(self, metadata: Any) -> None:
        """Take the new reads' deadlines, then begin them."""
        now = time.monotonic()
        for request_id, seconds in getattr(metadata, READ_DEADLINES, {}).items():
            self._read_deadlines[request_id] = now + seconds
        self._freed |= getattr(metadata, FREED_REQUESTS, set())
        super().start_load_kv(metadata)

    def _read_blocks_for_req(self, req_id: str, meta: Any) -> None:
        """Begin a read. One that cannot be begun has failed, and ends nothing else.

        vLLM asserts that the blocks and groups of both sides fit each other (0.31 to 0.33): it
        would end the engine for what another one has said.
        """
        try:
            if self._is_met_elsewhere(meta.remote):
                raise RuntimeError(f"two engines have the id {meta.remote.engine_id}")
            super()._read_blocks_for_req(req_id, meta)
        except Exception:
            logger.exception("The read of %s cannot be begun; computing instead.", req_id)
            self._handle_failed_transfer(req_id, None, self._recv_failures)

    def _is_met_elsewhere(self, remote: Any) -> bool:
        """Whether the engine of this id that is known is at another address, and so another one."""
        with self._handshake_lock:
            met = self._engine_by_address.get((remote.host, remote.port))
            return remote.engine_id in self._remote_agents and met != remote.engine_id

    def _get_new_notifs(self) -> set[str]:
        """Report as sent what D has read, and what nobody will read."""
        sent: set[str] = super()._get_new_notifs()
        # One that the engine still works on has no deadline yet: it is freed when it has one.
        for request_id in self._freed & self._reqs_to_send.keys():
            del self._reqs_to_send[request_id]
            self._reqs_to_process.discard(request_id)
            # As vLLM does when a lease of its own expires: some of several readers may have read.
            self.consumer_notification_counts_by_req.pop(request_id, None)
            self.expected_consumer_notifications_by_req.pop(request_id, None)
            sent.add(request_id)
        self._freed &= self._reqs_to_process
        return sent

    def _pop_done_transfers(self, transfers: dict[str, list[int]]) -> tuple[set[str], set[str]]:
        """Count a read that is seen to end after its deadline as failed.

        The owner keeps the blocks until then and no longer, so what came later can be another
        request's. A read that has not ended is left to its transport, however late it is: data of
        one that was given up can still arrive (seen with NIXL 1.5.1 over UCX and TCP, whose peer
        stood still), in blocks that would be another request's by then.
        """
        done, failed = super()._pop_done_transfers(transfers)
        now = time.monotonic()
        for request_id in done:
            if self._read_deadlines.pop(request_id, now) < now:
                failed.add(request_id)
        for request_id in self._read_deadlines.keys() - self._recving_metadata.keys():
            del self._read_deadlines[request_id]  # it failed before it was under way, or has ended
        return done, failed
