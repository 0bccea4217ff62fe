"""What stands behind the image names of a bed: the environment that the bed runs in.

The simulated engines and the operator need no installation of their own. An image of real
engines is added by whoever installs them.
"""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

Images = Mapping[str, Mapping[str, Any]]
"""Image name to `path`, `env` and `entrypoint`, as `disaggpair_bed.node.images` reads them."""

OPERATOR = "disaggpair/operator:dev"

SIMULATED_RELEASES = ("0.33.0", "0.32.0")
"""The vLLM releases that simulated engines are offered for."""


def simulated_image(release: str) -> str:
    """The name of the image of a simulated engine."""
    return f"disaggpair/vllm-sim:v{release}"


def bed_images(folder: Path) -> dict[str, dict[str, Any]]:
    """The operator and the simulated engines, with a `vllm` command written into `folder`."""
    programs = Path(sys.executable).parent
    shim = folder / "vllm"
    folder.mkdir(parents=True, exist_ok=True)
    python = shlex.quote(sys.executable)
    shim.write_text(f'#!/bin/sh\nexec {python} -m disaggpair_bed.cli engine "$@"\n')
    shim.chmod(0o755)
    images: dict[str, dict[str, Any]] = {
        OPERATOR: {"path": [str(programs)], "entrypoint": ["disaggpair"]}
    }
    for release in SIMULATED_RELEASES:
        images[simulated_image(release)] = {
            "path": [str(folder), str(programs)],
            "env": {"SIMENGINE_VERSION": release},
            "entrypoint": ["vllm", "serve"],
        }
    return images


def write_images(path: Path, images: Images) -> None:
    """Write an image map that running nodes may read at any moment."""
    scratch = path.with_suffix(".new")
    plain = {name: dict(entry) for name, entry in images.items()}
    scratch.write_text(yaml.safe_dump({"images": plain}, sort_keys=False))
    scratch.rename(path)
