"""Which releases of vLLM and NIXL the connector works with, and the refusal of all others.

The connector is a subclass of a class that vLLM does not promise to keep. What it relies on was
read in the releases of the table; another release may lack a name, or keep the name and change
what it does, which no check at start can see. So the release decides, and the shape of the class
is compared as well, for builds that carry a release's number and other code.
"""

import inspect
import re
from collections.abc import Mapping
from importlib import metadata
from typing import Final

from disaggpair_connector.errors import UnsupportedEngineError

LOWEST: Final = (0, 31)
BELOW: Final = (0, 34)
"""vLLM from `LOWEST` on and below `BELOW`: 0.31, 0.32 and 0.33."""

LOWEST_NIXL: Final = (1, 5)
"""The release that vLLM 0.33 asks for, and the one that 0.32 was tried with."""

NIXL_DISTRIBUTIONS: Final = ("nixl", "nixl-cu13", "nixl-cu12")
"""Names that NIXL is distributed under: the first selects one of the others, by CUDA release."""

CONSTRUCTOR: Final = ("self", "vllm_config", "role", "kv_cache_config")
"""Parameters of the base class's constructor."""


def require_engine(vllm_version: str) -> None:
    """Raise UnsupportedEngineError unless this vLLM, and the NIXL beside it, are accepted."""
    if fault := vllm_fault(vllm_version) or nixl_fault(installed_nixl()):
        raise UnsupportedEngineError(fault)


def require_base(base: type) -> None:
    """Raise UnsupportedEngineError unless the base class is built as the connector builds it."""
    # Of the class and not of its __init__, since a metaclass may stand before that.
    found = ("self", *inspect.signature(base).parameters)
    if found != CONSTRUCTOR:
        raise UnsupportedEngineError(
            f"vLLM's {base.__name__} is constructed with {', '.join(found)} and "
            f"DisaggPairConnector expects {', '.join(CONSTRUCTOR)}: this vLLM differs from the "
            f"releases {_range()}."
        )


def vllm_fault(version: str) -> str | None:
    """One sentence on why a vLLM version is refused, or None."""
    found = release(version)
    if found is not None and LOWEST <= found[:2] < BELOW:
        return None
    return (
        f"vLLM {version} is not supported by DisaggPairConnector: it accepts {_range()}. Use an "
        "image with one of these, or the connector Nixl."
    )


def nixl_fault(versions: Mapping[str, str]) -> str | None:
    """One sentence on why the installed NIXL is refused, or None.

    Args:
        versions: the installed distributions of NIXL, as `installed_nixl` returns them.
    """
    wanted = ".".join(map(str, LOWEST_NIXL))
    if not versions:
        return f"NIXL is not installed and DisaggPairConnector needs {wanted} or newer."
    for name, version in versions.items():
        found = release(version)
        if found is None or found[:2] < LOWEST_NIXL:
            return f"{name} {version} is installed and DisaggPairConnector needs {wanted} or newer."
    return None


def installed_nixl() -> dict[str, str]:
    """Version by distribution name, empty without NIXL."""
    found = {}
    for name in NIXL_DISTRIBUTIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def release(version: str) -> tuple[int, ...] | None:
    """The numbers in front: 0.32.0 of 0.32.0+cpu and of 0.32.0rc1; None without at least two."""
    found = re.match(r"v?(\d+(?:\.\d+)+)", version)
    return tuple(map(int, found[1].split("."))) if found else None


def _range() -> str:
    lowest, below = (".".join(map(str, bound)) for bound in (LOWEST, BELOW))
    return f"{lowest} <= vLLM < {below}"
