"""Ask vLLM's own code what it makes of a command line, from outside its environment.

    with Checks(engines, log) as checks:
        checks.accepts_kv_transfer_config(text)
        namespace = checks.parses_arguments(["MODEL", "--port", "8000", ...])

The questions go to one child, whose imports take about ten seconds and whose answers take none.
"""

import json
import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from disaggpair_bed.cpu.image import engine_environment
from disaggpair_bed.cpu.install import Engines

_SCRIPT = Path(__file__).parent / "scripts" / "answer_checks.py"


class RefusedError(ValueError):
    """What vLLM said against it, in its own words."""


class Checks:
    """A child in the engines' environment that answers questions.

    Args:
        engines: the environment.
        log: file for what vLLM prints.
    """

    def __init__(self, engines: Engines, log: Path) -> None:
        self._command = [str(engines.python), str(_SCRIPT)]
        self._log = log
        self._child: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(
                self._command,
                env={**os.environ, **engine_environment()},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._child is not None
        self._child.communicate()  # closes its input, at which it ends

    def accepts_kv_transfer_config(self, text: str) -> None:
        """Raise RefusedError unless KVTransferConfig takes this JSON."""
        self._ask("kv_transfer_config", text)

    def parses_arguments(self, argv: list[str]) -> dict[str, Any]:
        """The namespace that `vllm serve` makes of these arguments; RefusedError if it exits."""
        return dict(self._ask("arguments", argv))

    def parameters(self, dotted: str) -> list[str]:
        """The names of the parameters of a callable, `module:qualified.name`."""
        return list(self._ask("parameters", dotted))

    def connector_ancestry(self, text: str) -> list[str]:
        """Name of the class that a KV-transfer configuration loads, and of its ancestors."""
        return list(self._ask("get_connector_class", text))

    def _ask(self, kind: str, asked: Any) -> Any:
        child = self._child
        assert child is not None
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps({kind: asked}) + "\n")
        child.stdin.flush()
        line = child.stdout.readline()
        if not line:
            raise RuntimeError(f"the checks ended by themselves; their output is in {self._log}")
        answer = json.loads(line)
        if "fault" in answer:
            raise RefusedError(answer["fault"])
        return answer["value"]
