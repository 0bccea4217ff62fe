"""Which vLLM and which NIXL are accepted."""

from importlib import metadata

import pytest

from disaggpair_connector import compat
from disaggpair_connector.errors import UnsupportedEngineError


@pytest.mark.parametrize(
    "version", ["0.31.0", "0.32.0", "0.32.0+cpu", "0.33.0", "0.33.2", "0.33.1rc1", "v0.32.0"]
)
def test_releases_in_the_table_are_accepted(version: str) -> None:
    assert compat.vllm_fault(version) is None


@pytest.mark.parametrize(
    "version", ["0.30.0", "0.34.0", "0.34.0rc1", "1.32.0", "0.1.dev1+g1234567", "0.3.1", "dev", ""]
)
def test_every_other_release_is_refused_with_the_range(version: str) -> None:
    fault = compat.vllm_fault(version)
    assert fault is not None
    assert fault.startswith(f"vLLM {version} is not supported")
    assert "0.31 <= vLLM < 0.34" in fault


def test_nixl_has_to_be_installed() -> None:
    assert compat.nixl_fault({}) == (
        "NIXL is not installed and DisaggPairConnector needs 1.5 or newer."
    )


@pytest.mark.parametrize("version", ["1.5.0", "1.5.1", "2.0.0"])
def test_a_new_nixl_is_accepted(version: str) -> None:
    assert compat.nixl_fault({"nixl": version, "nixl-cu13": version}) is None


@pytest.mark.parametrize("version", ["1.4.1", "0.7.1", "unknown"])
def test_an_old_nixl_is_refused_by_name_and_version(version: str) -> None:
    assert compat.nixl_fault({"nixl": "1.5.1", "nixl-cu12": version}) == (
        f"nixl-cu12 {version} is installed and DisaggPairConnector needs 1.5 or newer."
    )


def test_nixl_is_found_under_any_of_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name != "nixl-cu13":
            raise metadata.PackageNotFoundError(name)
        return "1.5.1"

    monkeypatch.setattr(metadata, "version", version)
    assert compat.installed_nixl() == {"nixl-cu13": "1.5.1"}


def test_an_engine_is_refused_by_its_release_before_its_nixl(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compat, "installed_nixl", dict)
    with pytest.raises(UnsupportedEngineError, match=r"vLLM 0\.30\.0"):
        compat.require_engine("0.30.0")
    with pytest.raises(UnsupportedEngineError, match="NIXL is not installed"):
        compat.require_engine("0.32.0")


def test_a_base_class_with_another_constructor_is_refused() -> None:
    class Base:
        def __init__(self, vllm_config: object, role: object) -> None: ...

    with pytest.raises(
        UnsupportedEngineError, match="constructed with self, vllm_config, role and"
    ):
        compat.require_base(Base)


def test_a_base_class_that_inherits_the_constructor_is_accepted() -> None:
    class Base:
        def __init__(self, vllm_config: object, role: object, kv_cache_config: object) -> None: ...

    class Derived(Base):
        pass

    compat.require_base(Derived)
