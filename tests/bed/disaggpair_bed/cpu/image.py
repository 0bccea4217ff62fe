"""The image entry of real engines, as the process nodes read it.

A pod's own environment overrides what stands here, as it does with a container image.
"""

from pathlib import Path
from typing import Any

from disaggpair_bed.controlplane.progress import Say
from disaggpair_bed.cpu import install, model
from disaggpair_bed.cpu.install import VLLM_RELEASE, Engines

NAME = f"disaggpair/vllm-cpu:v{VLLM_RELEASE}"
"""The name of the image."""

_CONNECTOR = Path(__file__).resolve().parents[4] / "connector"
_PLUGINS = Path(__file__).resolve().parent / "engine_plugins"


MODEL_PATH = f"/models/{model.SERVED_NAME}"
"""Where a container of the image finds the model."""


def cpu_images(say: Say) -> dict[str, dict[str, Any]]:
    """The image map's part for CPU engines; installs what is missing.

    Raises:
        PrerequisiteError, BuildError: as `install.ensure` and `model.ensure`.
    """
    engines = install.ensure(say)
    return {NAME: image(engines, model.ensure(engines, say))}


def image(engines: Engines, model_folder: Path) -> dict[str, Any]:
    """The image: `path`, `env`, `entrypoint` and `files`."""
    return {
        "path": [str(engines.programs)],
        "env": engine_environment(),
        "entrypoint": ["vllm", "serve"],
        "files": {MODEL_PATH: str(model_folder)},
    }


def engine_environment(*, calm: bool = True) -> dict[str, str]:
    """What an engine needs beyond its pod's environment.

    Args:
        calm: with the plugin that keeps idle engines from spinning.
    """
    return {
        # The connector comes from the tree, so that an edit is in the next start.
        "PYTHONPATH": f"{_CONNECTOR}:{_PLUGINS}" if calm else str(_CONNECTOR),
        # Engines of one machine stand for engines of two: no transport but the network's, and
        # none that needs a /dev/shm or a process namespace in common.
        "UCX_TLS": "tcp,self",
        "UCX_NET_DEVICES": "lo",
        # One thread without a core of its own: bound threads of two engines meet on one core, and
        # vLLM's own choice keeps two cores for other work that a small machine does not have.
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        # In GiB. Without it an engine asks for nearly all memory of the machine.
        "VLLM_CPU_KVCACHE_SPACE": "1",
        # No C++ compiler is needed then, and no first request waits half a minute for one.
        "TORCHDYNAMO_DISABLE": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
