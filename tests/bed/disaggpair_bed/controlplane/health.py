"""Ask the programs of a control plane how they are, and wait for a good answer."""

import http.client
import json
import ssl
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from disaggpair_bed.controlplane.errors import StartError
from disaggpair_bed.controlplane.pki import KeyPair

_PAUSE_S = 0.1
_REQUEST_S = 5.0


class Client:
    """A blocking HTTPS client with a client certificate, for a few questions at start."""

    def __init__(self, authority: Path, identity: KeyPair) -> None:
        self._context = ssl.create_default_context(cafile=str(authority))
        self._context.load_cert_chain(identity.certificate, identity.key)

    def get(self, url: str) -> bytes:
        """The body of a 200 answer; OSError or HTTPException for anything else."""
        with urllib.request.urlopen(url, context=self._context, timeout=_REQUEST_S) as answer:
            body: bytes = answer.read()
            return body

    def get_json(self, url: str) -> Any:
        """The object in a 200 answer."""
        return json.loads(self.get(url))


def wait_for_answer(
    what: str,
    question: Callable[[], str | None],
    check: Callable[[], None],
    patience_s: float,
) -> None:
    """Ask until the answer is None; any other answer, or a failed request, says what is missing.

    `check` runs between two questions and raises if there is nothing left to wait for.

    Raises:
        StartError: the time ran out; the message has the last answer.
    """
    deadline = time.monotonic() + patience_s
    while (missing := _ask(question)) is not None:
        check()
        if time.monotonic() > deadline:
            raise StartError(f"{what}: not there after {patience_s:.0f} s: {missing}")
        time.sleep(_PAUSE_S)


def unready_nodes(nodes: list[dict[str, Any]], wanted: set[str]) -> str | None:
    """What keeps the wanted nodes from taking pods, None if nothing does.

    A Ready node still has its start-up taint for the moment that the node lifecycle controller
    needs to see it.
    """
    by_name = {node["metadata"]["name"]: node for node in nodes}
    for name in sorted(wanted):
        if name not in by_name:
            return f"node {name} is not registered"
        node = by_name[name]
        conditions = {entry["type"]: entry for entry in node["status"].get("conditions", [])}
        if conditions.get("Ready", {}).get("status") != "True":
            return f"node {name} is not Ready"
        for taint in node["spec"].get("taints", []):
            if taint["key"].startswith("node.kubernetes.io/"):
                return f"node {name} has the taint {taint['key']}"
    return None


def _ask(question: Callable[[], str | None]) -> str | None:
    try:
        return question()
    except (OSError, http.client.HTTPException) as error:
        return str(error) or type(error).__name__
