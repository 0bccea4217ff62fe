"""Run tests of this folder in the engines' interpreter, and write down what came of each.

    python run.py SITE_PACKAGES RESULTS TEST_FILE...

The engines' environment has no pytest. The project's has, and stands last on the path, so that of
what both have the engines' own is taken.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).resolve().parent
_ROOT = _FOLDER.parents[1]


class Recorder:
    """Writes one line of JSON for each test."""

    def __init__(self, results: Path) -> None:
        self._results = results

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            line = {
                "file": report.nodeid.split("::")[0].rpartition("/")[2],
                "test": report.nodeid.partition("::")[2],
                "outcome": report.outcome,
                "text": report.longreprtext,
            }
            with self._results.open("a") as lines:
                lines.write(json.dumps(line) + "\n")


def main(site_packages: str, results: str, *files: str) -> int:
    """Run, and return pytest's status."""
    sys.path.append(site_packages)
    coverage = None
    if os.environ.get("COVERAGE_RUN"):  # set by `coverage run`, under which the outer tests are
        from coverage import Coverage

        coverage = Coverage(config_file=str(_ROOT / "pyproject.toml"))
        coverage.start()
    import pytest

    status = pytest.main(
        [
            *(f if f.startswith("-") else str(_FOLDER / f) for f in files),
            f"--rootdir={_FOLDER}",
            f"--confcutdir={_FOLDER}",
            "--config-file=/dev/null",
            "--import-mode=importlib",
            "--quiet",
            "--show-capture=no",
            *("-p", "no:cacheprovider"),
            *("-p", "_hypothesis_pytestplugin"),
            *("-p", "pytest_timeout"),
            "--timeout=600",
        ],
        plugins=[Recorder(Path(results))],
    )
    if coverage is not None:
        coverage.stop()
        coverage.save()
    return int(status)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
