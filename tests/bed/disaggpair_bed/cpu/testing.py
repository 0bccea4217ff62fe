"""Pairs for tests, which a machine without the memory skips."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from disaggpair_bed.controlplane.errors import PrerequisiteError
from disaggpair_bed.cpu import install
from disaggpair_bed.cpu.install import Engines
from disaggpair_bed.cpu.pair import Pair, PairOptions


def require_memory() -> None:
    """Skip the test if a pair's memory is not free, except in CI, where a skip would pass."""
    try:
        install.require_memory()
    except PrerequisiteError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@contextmanager
def running_pair(
    engines: Engines, model: Path, folder: Path, options: PairOptions | None = None
) -> Iterator[Pair]:
    """P and D, healthy."""
    require_memory()
    with Pair(engines, model, folder, options) as pair:
        yield pair
