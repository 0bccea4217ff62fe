"""Programs that run with the code of a release, in the environment of the CPU engines.

    classes = release_scheduler_classes("0.33.0", engines, print)
    answer = classes.run(program, given)

The environment has one release of vLLM with its compiled parts. Another release's Python stands
before it on the path: `Scheduler`, `KVCacheManager` and NIXL's scheduler and worker halves are
that release's own, whole and unchanged, and can be imported, subclassed and called. What needs
compiled parts (attention, a model) cannot be run.
"""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import disaggpair_bed
import disaggpair_connector
from disaggpair_bed.controlplane.progress import Say
from disaggpair_bed.cpu.install import VLLM_RELEASE, Engines
from disaggpair_bed.releases import fetch

_BED = Path(disaggpair_bed.__file__).parents[1]
_CONNECTOR = Path(disaggpair_connector.__file__).parents[1]


class ProgramError(Exception):
    """A program ended with a fault; carries the end of what it said."""


@dataclass(frozen=True)
class ReleaseCode:
    """A release of vLLM, as far as it runs without its compiled parts."""

    version: str
    python: Path
    """The interpreter of the engines."""
    path: tuple[Path, ...]
    """What its imports find first: the release, the connector, the test bed."""

    def run(self, *arguments: str | Path, given: str = "", timeout_s: float = 600) -> str:
        """Run a program, `("script.py",)` or `("-m", "module")`, and return what it prints.

        The program may import vllm, `disaggpair_connector` and those modules of
        `disaggpair_bed` that need the standard library only.

        Raises:
            ProgramError: its status is not 0.
        """
        own = {
            "PYTHONPATH": os.pathsep.join(map(str, self.path)),
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
            "OMP_NUM_THREADS": "1",
        }
        done = subprocess.run(
            [str(self.python), *map(str, arguments)],
            input=given,
            env={**os.environ, **own},
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            timeout=timeout_s,
        )
        if done.returncode != 0:
            raise ProgramError(f"vLLM {self.version}: {done.stderr[-3000:]}")
        return done.stdout


def release_scheduler_classes(version: str, engines: Engines, say: Say) -> ReleaseCode:
    """The code of a release; its wheel is downloaded once, unless it is the engines' own.

    Raises:
        PrerequisiteError, BuildError: as `fetch.sources`.
    """
    before = () if version == VLLM_RELEASE else (fetch.sources(version, say),)
    return ReleaseCode(version, engines.python, (*before, _CONNECTOR, _BED))
