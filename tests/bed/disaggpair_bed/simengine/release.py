"""What differs between the vLLM releases that the simulated engine can follow."""

import re
from dataclasses import dataclass
from typing import Self

OLDEST = (0, 21)
NEWEST = (0, 33)

_CONNECTOR_VERSIONS = (
    ((0, 33), 15),
    ((0, 32), 14),
    ((0, 31), 13),
    ((0, 30), 11),
    ((0, 29), 9),
    ((0, 28), 7),
    ((0, 26), 5),
    ((0, 22), 4),
    ((0, 21), 3),
)

_BASE_KEYS = (
    "do_remote_prefill",
    "do_remote_decode",
    "remote_block_ids",
    "remote_engine_id",
    "remote_request_id",
    "remote_host",
    "remote_port",
    "tp_size",
    "remote_num_tokens",
)
_KEYS_SINCE = (
    ("remote_blocks_expiry_time", (0, 26)),
    ("transfer_mode", (0, 28)),
    ("dcp_size", (0, 29)),
    ("pp_size", (0, 29)),
    ("remote_registration_generation", (0, 33)),
)

_CONFIG_FIELDS = frozenset(
    {
        "kv_connector",
        "engine_id",
        "kv_buffer_device",
        "kv_role",
        "kv_port",
        "kv_connector_extra_config",
        "kv_connector_module_path",
        "enable_permute_local_kv",
        "kv_load_failure_policy",
    }
)
_CONFIG_FIELDS_UNTIL_0_31 = frozenset({"kv_buffer_size", "kv_rank", "kv_parallel_size", "kv_ip"})


@dataclass(frozen=True, order=True)
class Release:
    """One vLLM release, such as 0.33.0."""

    major: int
    minor: int
    patch: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `0.33.0`, `v0.33.0` or `0.33`.

        Raises:
            ValueError: not a version, or a release outside 0.21 to 0.33.
        """
        match = re.fullmatch(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:[.+-].*)?", text.strip())
        if match is None:
            raise ValueError(f"{text!r} is not a vLLM release such as 0.33.0")
        release = cls(int(match[1]), int(match[2]), int(match[3] or 0))
        if not OLDEST <= (release.major, release.minor) <= NEWEST:
            raise ValueError(f"{text!r} is outside the simulated releases, 0.21 to 0.33")
        return release

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"

    @property
    def _pair(self) -> tuple[int, int]:
        return (self.major, self.minor)

    @property
    def connector_version(self) -> int:
        """NIXL_CONNECTOR_VERSION, a part of the compatibility hash."""
        return next(number for since, number in _CONNECTOR_VERSIONS if self._pair >= since)

    @property
    def config_fields(self) -> frozenset[str]:
        """Top-level keys that `--kv-transfer-config` accepts."""
        if self._pair >= (0, 32):
            return _CONFIG_FIELDS
        return _CONFIG_FIELDS | _CONFIG_FIELDS_UNTIL_0_31

    @property
    def handle_keys(self) -> tuple[str, ...]:
        """Keys of the parameters that an engine returns."""
        return _BASE_KEYS + tuple(key for key, since in _KEYS_SINCE if self._pair >= since)

    @property
    def reports_prefill_cache_hits(self) -> bool:
        """P adds `remote_prefill_cached_tokens` to what it returns."""
        return self._pair >= (0, 31)

    @property
    def streams_handle(self) -> bool:
        """The chunk with the finish reason carries the handle."""
        return self._pair >= (0, 33)

    @property
    def declines_expired(self) -> bool:
        """A handle that expires within the margin is not read."""
        return self._pair >= (0, 26)

    @property
    def has_lease_settings(self) -> bool:
        """Lease and TTL come from the extra configuration, and D renews P's lease."""
        return self._pair >= (0, 22)

    @property
    def decline_counts_as_failure(self) -> bool:
        """A declined read also counts as a failed transfer."""
        return self._pair < (0, 31)

    @property
    def counts_late_notifications(self) -> bool:
        """`nixl_num_notifications_after_expiry` exists."""
        return self._pair >= (0, 32)

    @property
    def thinking_key(self) -> str:
        """Field of a message that has the thinking."""
        return "reasoning"

    @property
    def takes_prompt_token_ids(self) -> bool:
        """Chat understands a tokenised prompt inside `kv_transfer_params`."""
        return self._pair >= (0, 32)
