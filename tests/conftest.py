"""Switches and profiles for all tests."""

import os

import pytest
from hypothesis import settings

from disaggpair_bed.controlplane.errors import PrerequisiteError
from disaggpair_bed.cpu import install
from disaggpair_bed.cpu.install import Engines

# Needs vLLM: `tests/contract/test_connector_inside.py` runs it in the engines' interpreter.
collect_ignore = ["inside"]

settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("dev", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--refresh-golden", action="store_true", help="rewrite the golden files from the plan"
    )


@pytest.fixture
def refresh_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--refresh-golden"))


@pytest.fixture(scope="session")
def cpu_engines() -> Engines:
    """Real engines, installed now if need be; a machine that cannot have them skips their tests,
    except in CI, where a skip would pass for a success."""
    try:
        return install.ensure(print)
    except PrerequisiteError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
