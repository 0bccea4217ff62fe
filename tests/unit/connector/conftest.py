"""A stand-in for vLLM: the few names that the connector uses, in modules of their own."""

import importlib
import logging
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import disaggpair_connector
from disaggpair_connector import compat

V1 = "vllm.distributed.kv_transfer.kv_connector.v1"
OURS = ("engine", "connector")


class KVConnectorRole(Enum):
    SCHEDULER = 0
    WORKER = 1


class NixlPullConnector:
    """Records what it was built with."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        self.built_with = (vllm_config, role, kv_cache_config)

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: dict[str, Any]) -> bool:
        return False


Load = Callable[..., ModuleType]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Import the connector into a vLLM of some version."""
    monkeypatch.setattr(compat, "installed_nixl", lambda: {"nixl": "1.5.1", "nixl-cu13": "1.5.1"})

    def import_connector(version: str = "0.32.0", base: type = NixlPullConnector) -> ModuleType:
        names: dict[str, dict[str, Any]] = {
            "vllm": {"__version__": version},
            "vllm.logger": {"init_logger": logging.getLogger},
            f"{V1}.base": {"KVConnectorRole": KVConnectorRole},
            f"{V1}.nixl.connector": {"NixlPullConnector": base},
        }
        parents = {name.rsplit(".", depth)[0] for name in names for depth in range(8)}
        for name in sorted(parents | names.keys()):
            module = ModuleType(name)
            vars(module).update(names.get(name, {}))
            monkeypatch.setitem(sys.modules, name, module)
        return importlib.import_module("disaggpair_connector.connector")

    yield import_connector
    for name in OURS:
        sys.modules.pop(f"{disaggpair_connector.__name__}.{name}", None)
        vars(disaggpair_connector).pop(name, None)  # where `from ... import` looks first


@pytest.fixture
def engine_config() -> Callable[..., SimpleNamespace]:
    """A vLLM configuration with the members that the connector reads."""

    def make(
        extra: dict[str, Any] | None = None, context_parallel: int = 1, routed_experts: bool = False
    ) -> SimpleNamespace:
        return SimpleNamespace(
            kv_transfer_config=SimpleNamespace(
                kv_role="kv_consumer", kv_connector_extra_config=extra or {}
            ),
            parallel_config=SimpleNamespace(decode_context_parallel_size=context_parallel),
            aux_output_config=SimpleNamespace(enable_return_routed_experts=routed_experts),
        )

    return make
