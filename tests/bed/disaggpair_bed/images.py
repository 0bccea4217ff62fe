"""The images of a bed, by the kind of engine that its pods can have."""

from typing import Literal

from disaggpair_bed.controlplane.images import Images, bed_images
from disaggpair_bed.controlplane.progress import Say

EngineKind = Literal["cpu", "sim"]


def images_for(engine: EngineKind, say: Say) -> Images:
    """Simulated engines, and with `cpu` real ones too, installed now if they are not there.

    Raises:
        PrerequisiteError, BuildError: the real engines cannot be had, or have no memory to start.
    """
    images = bed_images()
    if engine == "cpu":
        from disaggpair_bed.cpu import image, install  # not for those who need none of it

        install.require_memory()
        images |= image.cpu_images(say)
    return images
