"""All that a scheduler process has of the connector: its half, and leases with their listener."""

import os
import secrets
from dataclasses import dataclass
from typing import Any, Final

from disaggpair_connector import contract, engine
from disaggpair_connector.book import LeaseBook
from disaggpair_connector.decode import DecodeScheduler
from disaggpair_connector.listener import LeaseListener
from disaggpair_connector.metrics import PairStats
from disaggpair_connector.prefill import PrefillScheduler
from disaggpair_connector.reader import LeaseReader
from disaggpair_connector.settings import Settings
from disaggpair_connector.tally import Tally

_FOR_VLLM_TO_END_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Terms:
    """How long leases last, in seconds."""

    ttl_s: float
    """Until a lease that nobody reads ends."""
    read_s: float
    """What a reader is told to have."""
    kept_s: float
    """When a lease ends whose reader does not say that it has read."""


def decode_terms(settings: Settings) -> Terms:
    """D's leases hold the blocks themselves."""
    return Terms(settings.decode_ttl_s, settings.lease_read_s, settings.lease_read_s)


def prefill_terms(settings: Settings) -> Terms:
    """P's leases end before vLLM's, which hold the blocks and are renewed by D's heartbeats.

    The last third of vLLM's lease is the reader's, to begin with heartbeats.
    """
    third = settings.prefill_lease_s / 3
    return Terms(2 * third, third, _FOR_VLLM_TO_END_S)


class SchedulerSide:
    """The scheduler half of a role with what it needs, from its start until `close`.

    Raises:
        ConfigError: the lease port cannot be listened on.
    """

    def __init__(
        self, vllm_config: Any, engine_id: str, kv_cache_config: Any, settings: Settings
    ) -> None:
        is_decode = vllm_config.kv_transfer_config.kv_role == contract.DECODE_ROLE
        terms = decode_terms(settings) if is_decode else prefill_terms(settings)
        index = engine.data_parallel_index(vllm_config)
        port = settings.lease_port_from(engine.side_channel_port()) + index
        self._tally = Tally()
        self._book = LeaseBook(
            epoch=secrets.token_hex(8),
            ttl_s=terms.ttl_s,
            claim_s=settings.lease_claim_s,
            read_s=terms.kept_s,
        )
        half: type[Any] = DecodeScheduler if is_decode else PrefillScheduler
        self.half = half(
            vllm_config,
            engine_id,
            kv_cache_config,
            book=self._book,
            lease_port=port,
            reader=LeaseReader(),
            tally=self._tally,
        )
        self._listener = LeaseListener(
            self._book,
            host=self.half.side_channel_host,
            port=port,
            key=os.environ.get(contract.LEASE_KEY_ENV),
            block_size=self.half.block_size,
            read_s=terms.read_s,
        )
        self._listener.start()

    @property
    def address(self) -> str:
        """Where the leases are listed, host and port."""
        return self._listener.address

    def bind(self, kv_cache_manager: Any) -> None:
        """Let the half take part in the allocation of blocks."""
        self.half.bind(kv_cache_manager)

    def stats(self) -> PairStats | None:
        """What was counted since the last call; None for nothing."""
        self._tally.leases(self._book.counters, self._book.counts())
        stats = PairStats()
        stats.add(self._tally.take())
        return None if stats.is_empty() else stats

    def close(self) -> None:
        """Stop listening; the half ends with vLLM's connector."""
        self._listener.stop()
