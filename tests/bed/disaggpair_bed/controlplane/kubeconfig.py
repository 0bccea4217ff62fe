"""Kubeconfig files: one cluster, one user, all certificates inside the file."""

import base64
from pathlib import Path

import yaml

from disaggpair_bed.controlplane.pki import KeyPair


def write_kubeconfig(path: Path, server: str, authority: Path, user: str, pair: KeyPair) -> None:
    """Write a file that makes its reader `user`, readable by its owner only.

    The certificates go inside, so the file can be copied away from the run folder.
    """
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "bed",
                "cluster": {"server": server, "certificate-authority-data": _inline(authority)},
            }
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": _inline(pair.certificate),
                    "client-key-data": _inline(pair.key),
                },
            }
        ],
        "contexts": [{"name": "bed", "context": {"cluster": "bed", "user": user}}],
        "current-context": "bed",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(content, sort_keys=False))


def _inline(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
