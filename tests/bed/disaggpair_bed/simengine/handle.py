"""The parameters that an engine returns: P's for the D leg, D's handle for the next turn."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from disaggpair_bed.simengine.release import Release


@dataclass
class HandleMaker:
    """Everything in a handle that is the same for every request of an engine."""

    release: Release
    engine_id: str
    host: str
    port: int
    tp_size: int = 1
    registration_generation: int = 0
    """Grows by one for each rank that registers its cache, at the start and when it wakes up."""

    def make(
        self,
        request_id: str,
        role: str,
        blocks: Sequence[int],
        num_tokens: int,
        expiry: float,
        cached_tokens: int,
    ) -> dict[str, Any]:
        """Parameters for the blocks of one request; `role` is the role this request played."""
        prefill = role == "prefill"
        values = {
            "do_remote_prefill": prefill,
            "do_remote_decode": not prefill,
            "remote_block_ids": [list(blocks)],
            "remote_engine_id": self.engine_id,
            "remote_request_id": request_id,
            "remote_host": self.host,
            "remote_port": self.port,
            "tp_size": self.tp_size,
            "dcp_size": 1,
            "pp_size": 1,
            "remote_num_tokens": num_tokens,
            "remote_blocks_expiry_time": None if prefill else expiry,
            "remote_registration_generation": self.registration_generation,
            "transfer_mode": "pull",
        }
        made = {key: values[key] for key in self.release.handle_keys}
        if prefill and self.release.reports_prefill_cache_hits:
            made["remote_prefill_cached_tokens"] = cached_tokens
        return made
