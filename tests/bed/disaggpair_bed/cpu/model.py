"""The model that CPU engines serve: a small Llama with random weights, made on the machine.

Nothing is downloaded, and the same files come out on every machine: the weights are drawn with a
fixed seed. It answers with noise, which is enough to see whose KV an answer was computed from.
"""

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from disaggpair_bed.cache import cache_root
from disaggpair_bed.controlplane.errors import BuildError
from disaggpair_bed.controlplane.progress import Say
from disaggpair_bed.cpu.install import LOCK, Engines

SERVED_NAME = "tiny"
"""The name that requests use; also the name of the folder."""

MAX_TOKENS = 32768
"""Longest context of the model."""

_SCRIPT = Path(__file__).parent / "scripts" / "make_model.py"


def ensure(engines: Engines, say: Say, environment: Mapping[str, str] = os.environ) -> Path:
    """The folder of the model, made now if it is not there.

    Raises:
        BuildError: the script that makes it failed.
    """
    parent = cache_root(environment) / "models" / model_key(_SCRIPT.read_bytes(), LOCK.read_bytes())
    folder = parent / SERVED_NAME
    if folder.is_dir():
        return folder
    parent.mkdir(parents=True, exist_ok=True)
    say("engines: making the model")
    with tempfile.TemporaryDirectory(dir=parent, prefix="making-") as scratch:
        made = Path(scratch) / SERVED_NAME
        command = [str(engines.python), "-I", str(_SCRIPT), str(made), str(MAX_TOKENS)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BuildError(f"the model could not be made:\n{done.stderr[-2000:]}")
        try:
            made.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another caller was first, with the same files
                raise
    return folder


def model_key(script: bytes, lock: bytes) -> str:
    """The name of the parent folder: the script, and the libraries that it runs with."""
    return hashlib.sha256(script + b"\0" + lock).hexdigest()
