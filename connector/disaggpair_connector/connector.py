"""The class that vLLM loads by module path: it checks, and puts its halves in the places of vLLM's.

vLLM makes one object of it in the engine core (scheduler role) and one in every worker. A check
that fails raises, which ends the engine: in the constructor at the latest, where the weights are
loaded already, and earlier where vLLM gives an opportunity.
"""

from collections.abc import Callable, Mapping
from typing import Any

from disaggpair_connector import __version__, compat, engine
from disaggpair_connector.errors import ConfigError
from disaggpair_connector.metrics import PairPromMetrics, PairStats
from disaggpair_connector.settings import Settings, engine_fault, parse_settings
from disaggpair_connector.side import SchedulerSide
from disaggpair_connector.worker import PairWorker

logger = engine.engine_logger()


class DisaggPairConnector(engine.NixlPullConnector):  # type: ignore[misc]  # vLLM has no types here
    """vLLM's NIXL pull connector with verified reads and leases.

    Raises:
        ConfigError: `kv_connector_extra_config` holds a key or a value that would be misread, or
            a setting of the engine does not work with this class.
    """

    def __init__(
        self, vllm_config: Any, role: engine.KVConnectorRole, kv_cache_config: Any
    ) -> None:
        settings = parse_settings(engine.extra_config(vllm_config))
        transfer = vllm_config.kv_transfer_config
        if fault := engine.name_checks_fault(vllm_config) or engine_fault(
            settings,
            kv_role=transfer.kv_role,
            kv_buffer_device=transfer.kv_buffer_device,
            device_type=engine.device_type(),
            prefill_context_parallel_size=(
                vllm_config.parallel_config.prefill_context_parallel_size
            ),
        ):
            raise ConfigError(fault)
        # The constructor in between makes vLLM's own halves, of which one opens sockets.
        engine.NixlBaseConnector.__init__(self, vllm_config, role, kv_cache_config)
        self._side: SchedulerSide | None = None
        self._give_role_back: Callable[[], None] | None = None
        if role == engine.KVConnectorRole.WORKER:
            self.connector_worker = PairWorker(
                vllm_config, self.engine_id, kv_cache_config, settings=settings
            )
            return
        self._side = SchedulerSide(vllm_config, self.engine_id, kv_cache_config, settings)
        self.connector_scheduler = self._side.half
        # One of each engine, so one line.
        logger.info("%s", describe(settings, transfer.kv_role, self._side.address))
        self._give_role_back = engine.let_frees_wait(vllm_config)

    def bind_kv_cache_manager(self, kv_cache_manager: Any) -> None:
        """Let leases take part in the allocation of blocks."""
        super().bind_kv_cache_manager(kv_cache_manager)
        if self._give_role_back is not None:
            self._give_role_back()
        if self._side is not None:
            self._side.bind(kv_cache_manager)

    def get_kv_connector_stats(self) -> Any:
        """What happened since the last call, in this process."""
        return super().get_kv_connector_stats() if self._side is None else self._side.stats()

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> Any:
        """Statistics as another process sent them."""
        return PairStats(data=data) if data is not None else PairStats()

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: Any,
        metric_types: dict[Any, Any],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> Any:
        """The metrics of the process that serves them."""
        return PairPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    def shutdown(self) -> None:
        """Close the listener with the engine."""
        if self._side is not None:
            self._side.close()
        super().shutdown()

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: dict[str, Any]) -> bool:
        """Check the keys, and answer as vLLM does.

        Asked while the command line becomes a configuration, if CUDA graphs are on: a wrong key
        then ends the start minutes before a constructor would see it.
        """
        parse_settings(extra_config)
        answer: bool = super().requires_piecewise_for_cudagraph(extra_config)
        return answer


def describe(
    settings: Settings,
    kv_role: str,
    listener: str,
    *,
    nixl: Mapping[str, str] | None = None,
) -> str:
    """The line that an engine writes once at its start.

    Args:
        settings: what the engine runs with.
        kv_role: its role as vLLM names it.
        listener: where its leases are listed, host and port.
        nixl: installed distributions of NIXL; None looks them up.
    """
    found = compat.installed_nixl() if nixl is None else nixl
    return (
        f"DisaggPairConnector {__version__}: vllm={engine.VLLM_VERSION} "
        f"nixl={','.join(sorted(set(found.values())))} role={kv_role} "
        f"bidirectional={'on' if settings.bidirectional else 'off'} "
        f"recompute_threshold_tokens={settings.recompute_threshold_tokens} "
        f"decode_ttl_s={settings.decode_ttl_s:g} prefill_lease_s={settings.prefill_lease_s:g} "
        f"backends={','.join(settings.backends)} leases={listener}"
    )
