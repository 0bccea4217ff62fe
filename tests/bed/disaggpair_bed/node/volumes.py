"""The volumes of one pod on this machine: made, kept up to date and removed."""

import asyncio
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from disaggpair_bed.node.api import Api
from disaggpair_bed.node.atomic import write_atomically
from disaggpair_bed.node.downward import Placement
from disaggpair_bed.node.env import Sources
from disaggpair_bed.node.errors import ApiError, MissingReference, SpecError
from disaggpair_bed.node.payload import (
    RENDERED,
    TokenRequest,
    render,
    token_requests,
    volume_references,
)
from disaggpair_bed.node.spec import Object, Pod

logger = logging.getLogger(__name__)

_RENEW_AT = 0.8
"""A token is renewed after this part of its life, as the kubelet does."""
_QUIET_REFUSALS = 4
_SUPPORTED = (*RENDERED, "emptyDir", "hostPath")


async def fetch_sources(
    api: Api, namespace: str, wanted: Iterable[tuple[str, str]], patience_s: float = 0.1
) -> Sources:
    """Read ConfigMaps and Secrets by name; one that does not exist is None in the result.

    The Node authorizer lets a node get, not list, what its pods refer to. It learns of a new pod a
    moment after the node does: a refusal is asked again after `patience_s` and twice that and so
    on, five times in all, and then taken for "not there yet".
    """
    found: dict[str, dict[str, Object | None]] = {"ConfigMap": {}, "Secret": {}}
    for kind, name in set(wanted):
        plural = "configmaps" if kind == "ConfigMap" else "secrets"
        try:
            obj: Object | None = await _allowed(
                api, f"/api/v1/namespaces/{namespace}/{plural}/{name}", patience_s
            )
        except ApiError as exc:
            if exc.status == 403:
                raise MissingReference(
                    f"{kind.lower()} {name!r} may not be read yet: {exc}"
                ) from exc
            if exc.status != 404:
                raise
            obj = None
        found[kind][name] = obj
    return Sources(found["ConfigMap"], found["Secret"])


async def _allowed(api: Api, path: str, patience_s: float) -> Object:
    for attempt in range(_QUIET_REFUSALS):
        try:
            return await api.get(path)
        except ApiError as exc:
            if exc.status != 403:
                raise
        await asyncio.sleep(patience_s * 2**attempt)
    return await api.get(path)


class Volumes:
    """The volumes of one pod below a directory of its own.

    `memory` is a directory on a tmpfs for emptyDir volumes of medium Memory, `now` gives seconds
    since the epoch.
    """

    def __init__(
        self, api: Api, directory: Path, memory: Path, now: Callable[[], float] = time.time
    ) -> None:
        self._api, self._dir, self._memory, self._now = api, directory, memory, now
        self._tokens: dict[TokenRequest, tuple[str, float]] = {}

    def path(self, volume: Object) -> Path:
        """Where a volume lies on the host."""
        if "hostPath" in volume:
            return Path(volume["hostPath"]["path"])
        in_memory = (volume.get("emptyDir") or {}).get("medium") == "Memory"
        return (self._memory if in_memory else self._dir) / str(volume["name"])

    async def prepare(self, pod: Pod, place: Placement) -> None:
        """Make every volume; raises SpecError or MissingReference naming the volume."""
        for volume in pod.volumes:
            try:
                if "emptyDir" in volume:
                    self.path(volume).mkdir(parents=True, exist_ok=True)
                    self.path(volume).chmod(0o777)
                elif "hostPath" in volume:
                    _check_host_path(volume["hostPath"])
                elif not any(kind in volume for kind in RENDERED):
                    kind = next((key for key in volume if key != "name"), "unknown")
                    raise SpecError(
                        f"{kind} is not supported by process nodes; "
                        f"allowed: {', '.join(_SUPPORTED)}"
                    )
            except SpecError as exc:
                raise SpecError(f"volume {volume['name']!r}: {exc}") from exc
        await self.refresh(pod, place)

    async def refresh(self, pod: Pod, place: Placement) -> None:
        """Write what changed behind the rendered volumes, and renew tokens before they expire."""
        rendered = [v for v in pod.volumes if any(kind in v for kind in RENDERED)]
        wanted = [ref for volume in rendered for ref in volume_references(volume)]
        sources = await fetch_sources(self._api, pod.namespace, wanted)
        for volume in rendered:
            tokens = {
                request: await self._token(pod, request) for request in token_requests(volume)
            }
            try:
                files = render(volume, pod, place, sources, tokens)
            except MissingReference as exc:
                raise MissingReference(f"volume {volume['name']!r}: {exc}") from exc
            if write_atomically(self.path(volume), files):
                logger.debug("wrote volume %s of %s", volume["name"], pod.key)

    async def remove(self) -> None:
        """Delete everything but host paths; call when no process of the pod is left."""
        for directory in (self._dir, self._memory):
            await asyncio.to_thread(shutil.rmtree, directory, True)

    async def _token(self, pod: Pod, request: TokenRequest) -> str:
        token, renew_at = self._tokens.get(request, ("", 0.0))
        if self._now() < renew_at:
            return token
        body: dict[str, Any] = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": [request.audience] if request.audience else [],
                "expirationSeconds": request.expiration_s,
                "boundObjectRef": {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": pod.name,
                    "uid": pod.uid,
                },
            },
        }
        path = f"/api/v1/namespaces/{pod.namespace}/serviceaccounts/{pod.service_account}/token"
        answer: Mapping[str, Any] = (await self._api.create(path, body))["status"]
        expires = datetime.fromisoformat(answer["expirationTimestamp"]).timestamp()
        now = self._now()
        self._tokens[request] = (answer["token"], now + _RENEW_AT * (expires - now))
        return str(answer["token"])


def _check_host_path(spec: Object) -> None:
    path, kind = spec["path"], spec.get("type", "")
    if kind == "DirectoryOrCreate":
        os.makedirs(path, exist_ok=True)
    elif kind == "FileOrCreate":
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o644))
    elif kind == "Directory" and not os.path.isdir(path):
        raise SpecError(f"hostPath {path} is not a directory")
    elif kind == "File" and not os.path.isfile(path):
        raise SpecError(f"hostPath {path} is not a file")
    elif not os.path.exists(path):
        raise SpecError(f"hostPath {path} does not exist")
