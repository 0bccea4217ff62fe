"""Make the parcels for a GPU machine that has torch and no package registry.

    python parcels.py FOLDER

FOLDER gets p1 (wheels of wheels.txt), p2 (vLLM's largest library), p3 (the rest of vLLM as far as
dense models on Hopper need it) and p4 (NIXL), each small enough for a channel of 64 MiB.
"""

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Final

VLLM: Final = "vllm==0.26.0"
"""The newest release for torch 2.11."""

NIXL: Final = ("nixl==1.5.1", "nixl-cu13==1.5.1")

PYTHON: Final = "3.12"
_GLIBC: Final = (5, 12, 17, 24, 27, 28, 31, 34)
"""Minor numbers of the manylinux_2_N tags, which pip compares exactly."""

_LARGEST: Final = "_C_stable_libtorch.abi3.so"
_NOT_NEEDED: Final = (
    "_vllm_fa2_C",
    "_moe_C",
    "vllm-rs",
    "_flashmla",
    "_qutlass",
    "fmha_sm100",
    "swagger",
    "cpython-310",
    "cpython-311",
    "cpython-313",
    "cpython-314",
    "nixl_ep",
)


def main(folder: Path) -> None:
    here = Path(__file__).resolve().parent
    with tempfile.TemporaryDirectory() as scratch:
        whole = Path(scratch)
        download(folder / "p1", "-r", str(here / "wheels.txt"))
        download(whole / "vllm", VLLM)
        download(whole / "nixl", *NIXL)
        pack(whole / "vllm", folder / "p2" / "library.tar.xz", lambda name: _LARGEST in name)
        pack(whole / "vllm", folder / "p3" / "vllm.tar.xz", is_needed)
        pack(whole / "nixl", folder / "p4" / "nixl.tar.xz", is_needed)


def is_needed(name: str) -> bool:
    parts = PurePosixPath(name).parts
    headers = "third_party" in parts and "include" in parts
    return not headers and _LARGEST not in name and not any(part in name for part in _NOT_NEEDED)


def download(folder: Path, *requirements: str) -> None:
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in _GLIBC]
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
            *("--only-binary=:all:", "--python-version", PYTHON, "--implementation", "cp"),
            *("--abi=cp312", "--abi=abi3", "--abi=none", "--platform=manylinux2014_x86_64"),
            *("--platform=manylinux1_x86_64", *platforms, "--dest", str(folder), *requirements),
        ],
        check=True,
    )


def pack(wheels: Path, target: Path, is_taken: Callable[[str], bool]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        for wheel in wheels.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                names = [name for name in archive.namelist() if is_taken(name)]
                archive.extractall(scratch, names)
        subprocess.run(["tar", "-C", scratch, "-I", "xz -3", "-cf", str(target), "."], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
