"""What stands behind the image names of a bed: the environment that the bed runs in.

The operator and the simulated engines need no installation of their own. An image of real
engines is added by whoever installs them.
"""

import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

Images = Mapping[str, Mapping[str, Any]]
"""Image name to `path`, `env` and `entrypoint`, as `disaggpair_bed.node.images` reads them."""

OPERATOR = "disaggpair/operator:dev"

RELEASED_OPERATOR = f"disaggpair/operator:{version('disaggpair')}"
"""What the chart installs when no tag is set: the same code on a bed."""

SIMULATED_RELEASES = ("0.33.0", "0.32.0")
"""The vLLM releases that simulated engines are offered for."""

_SHIMS = Path(__file__).parent / "shims"


def simulated_image(release: str) -> str:
    """The name of the image of a simulated engine."""
    return f"disaggpair/vllm-sim:v{release}"


def bed_images() -> dict[str, dict[str, Any]]:
    """The operator, with the `disaggpair` command, and the simulated engines, with `vllm`."""
    programs = str(Path(sys.executable).parent)
    operator = {"path": [programs], "entrypoint": ["disaggpair"]}
    images: dict[str, dict[str, Any]] = {OPERATOR: operator, RELEASED_OPERATOR: operator}
    for release in SIMULATED_RELEASES:
        images[simulated_image(release)] = {
            "path": [str(_SHIMS), programs],
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
