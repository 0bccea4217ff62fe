"""The arrows between modules, as .importlinter states them."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# In a process of its own: the linter configures logging for the whole process.
LINT = "import importlinter.cli as cli, sys; sys.exit(cli.lint_imports(no_cache=True))"


def test_nobody_imports_what_it_may_not() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LINT], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
