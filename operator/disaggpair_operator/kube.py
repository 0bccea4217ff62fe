"""The Cluster protocol over HTTP: the one module that imports the official Kubernetes client.

Only its configuration, sign-in and transport are used. Paths come from the table of kinds, so no
call waits for discovery, and objects stay plain mappings.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
from kubernetes.aio import client, config

from disaggpair_operator import kinds, names
from disaggpair_operator.cluster import (
    ClusterError,
    Conflict,
    Forbidden,
    Rejected,
    Unavailable,
)
from disaggpair_operator.errors import NoCredentials
from disaggpair_operator.kinds import Kind, find_kind
from disaggpair_operator.model import Object, Ref, SecretView
from disaggpair_operator.ownership import ref_of

_TIMEOUT: Final = aiohttp.ClientTimeout(total=30, connect=10)
_APPLY: Final = "application/apply-patch+yaml"
_MERGE: Final = "application/merge-patch+json"
_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_APPLY_QUERY: Final = {"fieldManager": names.FIELD_MANAGER, "force": "true"}
_MAX_MESSAGE: Final = 1000
"""Characters of an API server's message that are kept; a 422 may quote whole objects."""


@dataclass(frozen=True)
class Credentials:
    """What another HTTP client needs to reach the same API server as the same account."""

    server: str
    ca_path: str | None
    insecure: bool
    authorization: str | None
    """Value of the Authorization header; secret."""
    certificate_path: str | None
    private_key_path: str | None

    def __repr__(self) -> str:
        return f"Credentials(server={self.server!r})"


class KubeCluster:
    """Kubernetes objects of a real API server."""

    def __init__(self, api: client.ApiClient) -> None:
        self._api = api

    async def get(self, ref: Ref) -> Object | None:
        """See `cluster.Cluster`."""
        path = _path(_kind(ref.api_version, ref.kind), ref.namespace, ref.name)
        return await self._request("GET", path, f"read {ref}", missing_ok=True)

    async def list(
        self, api_version: str, kind: str, namespace: str = "", selector: str = ""
    ) -> Sequence[Object]:
        """See `cluster.Cluster`."""
        path = _path(_kind(api_version, kind), namespace)
        query = {"labelSelector": selector} if selector else {}
        where = f" in {namespace}" if namespace else ""
        answer = await self._request("GET", path, f"list {kind}{where}", query=query)
        # The items of a list do not say what they are.
        named = {"apiVersion": api_version, "kind": kind}
        return [{**named, **item} for item in (answer or {}).get("items") or ()]

    async def apply(self, obj: Object) -> Object:
        """See `cluster.Cluster`."""
        ref = ref_of(obj)
        answer = await self._request(
            "PATCH",
            _path(_kind(ref.api_version, ref.kind), ref.namespace, ref.name),
            f"apply {ref}",
            query=_APPLY_QUERY,
            body=obj,
            content_type=_APPLY,
        )
        return answer or {}

    async def delete(self, ref: Ref, uid: str) -> None:
        """See `cluster.Cluster`. What the object owns goes after it, in the background."""
        await self._request(
            "DELETE",
            _path(_kind(ref.api_version, ref.kind), ref.namespace, ref.name),
            f"delete {ref}",
            body={"preconditions": {"uid": uid}, "propagationPolicy": "Background"},
            missing_ok=True,
        )

    async def patch_status(self, ref: Ref, status: Mapping[str, Any]) -> Object | None:
        """See `cluster.Cluster`.

        Server-side apply replaces exactly the fields that this manager wrote before, so a
        condition that is left out disappears, which a merge patch could not do; and the API
        server ignores an apply that changes nothing.
        """
        kind = _kind(ref.api_version, ref.kind)
        body = {
            "apiVersion": ref.api_version,
            "kind": ref.kind,
            "metadata": {"name": ref.name, "namespace": ref.namespace},
            "status": status,
        }
        return await self._request(
            "PATCH",
            f"{_path(kind, ref.namespace, ref.name)}/status",
            f"write the status of {ref}",
            query=_APPLY_QUERY,
            body=body,
            content_type=_APPLY,
            missing_ok=True,
        )

    async def look_at_secret(self, ref: Ref) -> SecretView | None:
        """See `cluster.Cluster`. The values are dropped here; nothing else sees them."""
        path = _path(kinds.SECRET, ref.namespace, ref.name)
        found = await self._request("GET", path, f"look at {ref}", missing_ok=True)
        if found is None:
            return None
        rest = {key: value for key, value in found.items() if key != "data"}
        data = found.get("data") or {}
        return SecretView(rest, frozenset(key for key, value in data.items() if value))

    async def write_secret(self, obj: Object) -> None:
        """See `cluster.Cluster`. The answer would repeat the values, so its metadata is asked for.

        A merge patch, since a server-side apply would drop the keys that it does not name.
        """
        ref = ref_of(obj)
        exists = "resourceVersion" in obj["metadata"]
        await self._request(
            "PATCH" if exists else "POST",
            _path(kinds.SECRET, ref.namespace, ref.name if exists else ""),
            f"{'fill' if exists else 'create'} {ref}",
            query={"fieldManager": names.FIELD_MANAGER},
            body=obj,
            content_type=_MERGE if exists else "application/json",
            accept=_METADATA,
        )

    async def credentials(self) -> Credentials:
        """Fresh credentials of this connection, for the watches of another client."""
        setup = self._api.configuration
        return Credentials(
            server=setup.host,
            ca_path=setup.ssl_ca_cert,
            insecure=not setup.verify_ssl,
            authorization=await setup.get_api_key_with_prefix("BearerToken"),
            certificate_path=setup.cert_file,
            private_key_path=setup.key_file,
        )

    async def _request(
        self,
        method: str,
        path: str,
        what: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        missing_ok: bool = False,
    ) -> dict[str, Any] | None:
        """One request; None for a missing object where that is an answer."""
        try:
            request = await self._api.param_serialize(
                method,
                path,
                query_params=list((query or {}).items()),
                header_params={"Accept": accept, "Content-Type": content_type},
                body=_plain(body) if body is not None else None,
                auth_settings=["BearerToken"],
            )
            response = await self._api.call_api(*request, _request_timeout=_TIMEOUT)
            data = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"could not {what}: {str(error) or 'no answer in time'}") from error
        if response.status == 404 and missing_ok:
            return None
        if response.status >= 300:
            raise _error(response.status, what, data)
        answer: dict[str, Any] = json.loads(data)
        return answer


@asynccontextmanager
async def connect(kubeconfig: str = "", refresh_s: float = 60.0) -> AsyncIterator[KubeCluster]:
    """A connection with the first credentials found; see `settings.Settings.kubeconfig`.

    Raises NoCredentials when there are none or they cannot be used. A kubeconfig's sign-in plug-in
    is asked for a new token when the old one expires, looked at every `refresh_s` seconds; a
    service account's token is read again by the client itself.
    """
    setup = client.Configuration()
    loader = await _load(_kubeconfig(kubeconfig), setup)
    async with client.ApiClient(setup) as api, AsyncExitStack() as stack:
        api.user_agent = names.FIELD_MANAGER
        if loader is not None:
            # Ends at once when there is no plug-in.
            refresh = config.refresh_token(loader, setup, interval=refresh_s)
            stack.callback(asyncio.create_task(refresh, name="token refresh").cancel)
        yield KubeCluster(api)


def _kubeconfig(given: str) -> str:
    """Kubeconfig to use, or several as in `$KUBECONFIG`; empty for the pod's service account."""
    source = given or os.environ.get("KUBECONFIG", "")
    if not source and "KUBERNETES_SERVICE_HOST" in os.environ:
        return ""
    source = source or str(Path.home() / ".kube" / "config")
    if not any(Path(path).expanduser().exists() for path in source.split(os.pathsep)):
        raise NoCredentials(
            f"there is no kubeconfig {source}: give one with --kubeconfig or $KUBECONFIG, "
            "or run in a pod"
        )
    return source


async def _load(source: str, setup: client.Configuration) -> Any:
    """Fill `setup` from a kubeconfig, and return its loader, or from the service account."""
    try:
        if source:
            return await config.load_kube_config(
                config_file=source, client_configuration=setup, persist_config=False
            )
        config.load_incluster_config(client_configuration=setup)
    except (config.ConfigException, OSError) as error:
        where = f"kubeconfig {source}" if source else "service account of this pod"
        raise NoCredentials(f"cannot connect with the {where}: {error}") from error
    return None


def _kind(api_version: str, kind: str) -> Kind:
    found = find_kind(api_version, kind)
    if found is None:
        raise Rejected(f"{api_version} {kind} is not a kind this operator handles")
    return found


def _path(kind: Kind, namespace: str, name: str = "") -> str:
    """Path of an object, or of its collection without a name."""
    parts = ["apis", kind.group, kind.version] if kind.group else ["api", kind.version]
    if kind.namespaced and namespace:
        parts += ["namespaces", namespace]
    return "/" + "/".join([*parts, kind.plural, *([name] if name else [])])


def _error(status: int, what: str, data: bytes) -> ClusterError:
    """The protocol's error for an answer that is none."""
    known: dict[int, type[ClusterError]] = {401: Forbidden, 403: Forbidden, 409: Conflict}
    if status in known:
        error = known[status]
    elif status in (408, 410, 429) or status >= 500:
        error = Unavailable
    else:
        error = Rejected
    return error(f"could not {what}: {_message(data) or f'HTTP {status}'}")


def _message(data: bytes) -> str:
    """The sentence in a Status object; nothing of any other body, which might hold secrets."""
    try:
        answer = json.loads(data)
    except ValueError:
        return ""
    if not isinstance(answer, dict) or answer.get("kind") != "Status":
        return ""
    return str(answer.get("message", ""))[:_MAX_MESSAGE]


def _plain(value: Any) -> Any:
    """The same value made of dicts and lists, as the client's serializer takes them."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
