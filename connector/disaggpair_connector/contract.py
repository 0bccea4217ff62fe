"""Names on the wire between operator, router and connector.

Standard library only: operator and router read these names without vLLM or torch. A name of
vLLM's own is listed with the release in which it was checked.
"""

import re
from typing import Final

CONNECTOR_CLASS: Final = "DisaggPairConnector"
"""Value of `kv_connector` that selects our class."""

CONNECTOR_MODULE: Final = "disaggpair_connector.connector"
"""Value of `kv_connector_module_path`, importable inside the engine's image."""

NIXL_CONNECTOR_CLASS: Final = "NixlConnector"
"""vLLM's own NIXL connector in pull mode, every release since 0.19."""

PREFILL_ROLE: Final = "kv_producer"
DECODE_ROLE: Final = "kv_consumer"
"""`kv_role` of each side since vLLM 0.23."""

LEGACY_ROLE: Final = "kv_both"
"""`kv_role` of both sides before vLLM 0.23, deprecated since."""

# Keys of `kv_connector_extra_config` (vLLM 0.22.1 to 0.33.0). vLLM ignores a key it does not
# know, so a misspelt key switches its feature off without a message.
EXTRA_BACKENDS: Final = "backends"
EXTRA_BIDIRECTIONAL: Final = "bidirectional_kv_xfer"
EXTRA_RECOMPUTE_THRESHOLD: Final = "kv_recompute_threshold"
EXTRA_DECODE_TTL: Final = "decoder_kv_blocks_ttl"
EXTRA_PREFILL_LEASE: Final = "kv_lease_duration"

# Keys of `kv_connector_extra_config` that `DisaggPairConnector` reads and vLLM ignores.
EXTRA_LEASE_PORT: Final = "lease_port"
EXTRA_LEASE_CLAIM: Final = "lease_claim_s"
EXTRA_LEASE_READ: Final = "lease_read_s"

LEASE_PORT_OFFSET: Final = 100
"""The lease port is the side channel's plus this where the configuration names none."""

KV_TRANSFER_PARAMS: Final = "kv_transfer_params"
"""Key of a request or response body that holds a handle."""

PAIR_PARAMS: Final = "disaggpair"
"""Key inside the parameters of `KV_TRANSFER_PARAMS` that holds the object of our connector."""

LEASE_ID: Final = re.compile(r"[0-9A-Za-z_-][0-9A-Za-z_.-]{0,127}")
"""A lease's id: stands in a path as it is."""

LEASE_KEY_ENV: Final = "DISAGGPAIR_LEASE_KEY"
"""Bearer key with which a router lists, watches and claims the leases of a D."""

CONVERSATION_KEY_ENV: Final = "DISAGGPAIR_CONVERSATION_KEY"
"""Text under which the routers of one pair make the keys of conversations, 16 characters or more.
Without it they make them under the lease key, and without that each router under its own."""

ENGINE_KEY_ENV: Final = "DISAGGPAIR_ENGINE_KEY"
"""API key that a router presents to the engines instead of its callers' keys."""

SIDE_CHANNEL_HOST_ENV: Final = "VLLM_NIXL_SIDE_CHANNEL_HOST"
SIDE_CHANNEL_PORT_ENV: Final = "VLLM_NIXL_SIDE_CHANNEL_PORT"

EXPIRY_MARGIN_S: Final = 5
"""P declines a handle with less than this left, in seconds (vLLM 0.26.0 to 0.33.0)."""
