"""The class that vLLM loads by module path. It checks, says what it is, and is vLLM's otherwise.

vLLM makes one object of it in the engine core (scheduler role) and one in every worker. A check
that fails raises, which ends the engine: in the constructor at the latest, where the weights are
loaded already, and earlier where vLLM gives an opportunity.
"""

from collections.abc import Mapping
from typing import Any

from disaggpair_connector import __version__, compat, engine
from disaggpair_connector.errors import ConfigError
from disaggpair_connector.settings import Settings, parse_settings

logger = engine.engine_logger()


class DisaggPairConnector(engine.NixlPullConnector):  # type: ignore[misc]  # vLLM has no types here
    """vLLM's NIXL pull connector behind a check of its configuration.

    Raises:
        ConfigError: `kv_connector_extra_config` holds a key or a value that would be misread, or
            a setting of the engine does not work with this class.
    """

    def __init__(
        self, vllm_config: Any, role: engine.KVConnectorRole, kv_cache_config: Any
    ) -> None:
        settings = parse_settings(engine.extra_config(vllm_config))
        if fault := engine.name_checks_fault(vllm_config):
            raise ConfigError(fault)
        super().__init__(vllm_config, role, kv_cache_config)
        if role == engine.KVConnectorRole.SCHEDULER:  # one of each engine, so one line
            logger.info("%s", describe(settings, vllm_config.kv_transfer_config.kv_role))

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: dict[str, Any]) -> bool:
        """Check the keys, and answer as vLLM does.

        Asked while the command line becomes a configuration, if CUDA graphs are on: a wrong key
        then ends the start minutes before a constructor would see it.
        """
        parse_settings(extra_config)
        answer: bool = super().requires_piecewise_for_cudagraph(extra_config)
        return answer


def describe(settings: Settings, kv_role: str, nixl: Mapping[str, str] | None = None) -> str:
    """The line that an engine writes once at its start.

    Args:
        settings: what the engine runs with.
        kv_role: its role as vLLM names it.
        nixl: installed distributions of NIXL; None looks them up.
    """
    found = compat.installed_nixl() if nixl is None else nixl
    return (
        f"DisaggPairConnector {__version__}: vllm={engine.VLLM_VERSION} "
        f"nixl={','.join(sorted(set(found.values())))} role={kv_role} "
        f"bidirectional={'on' if settings.bidirectional else 'off'} "
        f"recompute_threshold_tokens={settings.recompute_threshold_tokens} "
        f"decode_ttl_s={settings.decode_ttl_s:g} prefill_lease_s={settings.prefill_lease_s:g} "
        f"backends={','.join(settings.backends)}"
    )
