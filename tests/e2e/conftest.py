"""A pair of real engines on the CPU, without a cluster; its start is on no test's clock."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from disaggpair_bed.controlplane.errors import PrerequisiteError
from disaggpair_bed.cpu import install, model
from disaggpair_bed.cpu.install import Engines
from disaggpair_bed.cpu.pair import Pair

TEST_TIMEOUT_S = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark this folder's tests."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.engines)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S, func_only=True))


@pytest.fixture(scope="session")
def tiny_model(cpu_engines: Engines) -> Path:
    return model.ensure(cpu_engines, print)


@pytest.fixture(scope="module")
def engine_pair(
    cpu_engines: Engines, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    """P and D, healthy; of one module, since a cluster's engines need the memory too."""
    try:
        install.require_memory()
    except PrerequisiteError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    with Pair(cpu_engines, tiny_model, tmp_path_factory.mktemp("pair")) as running:
        yield running
