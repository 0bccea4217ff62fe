"""Runs a replay program in the interpreter of the CPU engines."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from disaggpair_bed.cpu import install


def replayed(program: ModuleType, cases: Sequence[dict[str, Any]]) -> list[Any]:
    """The results of the cases, in their order.

    Args:
        program: a module that reads cases from standard input and writes results.
        cases: JSON values.

    Raises:
        AssertionError: the program failed.
    """
    engines = install.ensure(lambda _: None)
    environment = {**os.environ, "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [str(engines.python), str(Path(str(program.__file__)))],
        input=json.dumps(cases),
        env={key: value for key, value in environment.items() if key != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr[-2000:]
    results: list[Any] = json.loads(done.stdout)
    return results
