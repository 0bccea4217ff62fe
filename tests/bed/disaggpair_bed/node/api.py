"""The API server as one node sees it. The only module that talks to it.

Objects stay the plain JSON they are on the wire: a node reads a few fields of many objects, and
typed models would cost more time than everything else an idle node does.
"""

import asyncio
import base64
import json
import logging
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import aiohttp
import yaml
from multidict import CIMultiDict

from disaggpair_bed.node.errors import ApiError, ConfigError

logger = logging.getLogger(__name__)

STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"
_WATCH_S = 240
_TIMEOUT = aiohttp.ClientTimeout(total=30)
_WATCH_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=_WATCH_S + 30)
_RETRY_S = (0.2, 0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True)
class Change:
    """A change of a watched set: SYNC replaces all of it by `items`, the others carry one item."""

    type: Literal["SYNC", "ADDED", "MODIFIED", "DELETED"]
    items: tuple[Mapping[str, Any], ...]


class Api:
    """A client with the credentials of one kubeconfig. Close it with `aclose`."""

    def __init__(
        self, server: str, tls: ssl.SSLContext, headers: Iterable[tuple[str, str]]
    ) -> None:
        self.server = server.rstrip("/")
        self._tls = tls
        self._headers = CIMultiDict(headers)
        self._session: aiohttp.ClientSession | None = None

    @classmethod
    def from_kubeconfig(cls, path: Path, server: str | None = None) -> "Api":
        """Use the current context of a kubeconfig; `server` replaces its URL."""
        try:
            raw = yaml.safe_load(path.read_text())
            context = _named(raw["contexts"], raw["current-context"])["context"]
            cluster = _named(raw["clusters"], context["cluster"])["cluster"]
            user = _named(raw["users"], context["user"])["user"]
            url = server or cluster["server"]
            tls = _tls_context(cluster, user, path.parent)
        except (OSError, yaml.YAMLError, KeyError, TypeError, ssl.SSLError) as exc:
            raise ConfigError(f"{path} is not a usable kubeconfig: {exc!r}") from exc
        return cls(url, tls, _identity(user))

    @property
    def host(self) -> str:
        """Host of the API server."""
        return urlsplit(self.server).hostname or ""

    @property
    def port(self) -> int:
        """Port of the API server."""
        return urlsplit(self.server).port or 443

    async def aclose(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str) -> dict[str, Any]:
        """Read an object."""
        return await self._send("GET", path)

    async def create(self, path: str, obj: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object in a collection, or post to a subresource."""
        return await self._send("POST", path, obj, "application/json")

    async def patch(self, path: str, patch: Mapping[str, Any], kind: str = MERGE) -> dict[str, Any]:
        """Patch an object."""
        return await self._send("PATCH", path, patch, kind)

    async def delete(self, path: str, options: Mapping[str, Any]) -> None:
        """Delete an object; `options` are DeleteOptions."""
        await self._send("DELETE", path, options, "application/json")

    async def follow(self, path: str, query: str) -> AsyncIterator[Change]:
        """List a collection, then watch it for ever, over lost connections and expired versions.

        Begins with a SYNC. A later SYNC follows when changes may have been missed.
        """
        failures = 0
        version = ""
        while True:
            try:
                if not version:
                    listed = await self._send("GET", f"{path}?{query}")
                    version = listed["metadata"]["resourceVersion"]
                    yield Change("SYNC", tuple(listed.get("items") or ()))
                async for event in self._watch(f"{path}?{query}", version):
                    failures = 0
                    obj = event["object"]
                    if event["type"] == "ERROR":
                        raise ApiError(
                            int(obj.get("code") or 500), obj.get("message", "watch failed")
                        )
                    version = obj["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        yield Change(event["type"], (obj,))
            except ApiError as exc:
                # 410: the version is too old to watch from. Refusals may pass too, as when the
                # node's own object was just made and the authorizer does not know it yet.
                logger.debug("watching %s: %s", path, exc)
                version = ""
                await asyncio.sleep(_RETRY_S[min(failures, len(_RETRY_S) - 1)])
                failures += 1

    async def _watch(self, url: str, version: str) -> AsyncIterator[dict[str, Any]]:
        query = (
            f"&watch=1&allowWatchBookmarks=true&timeoutSeconds={_WATCH_S}&resourceVersion={version}"
        )
        try:
            async with self._client().get(
                self.server + url + query, timeout=_WATCH_TIMEOUT, headers=self._headers
            ) as answer:
                if answer.status != 200:
                    raise ApiError(answer.status, await answer.text())
                rest = b""
                async for chunk in answer.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        yield json.loads(line)
        except (aiohttp.ClientError, TimeoutError, OSError) as exc:
            raise ApiError(0, f"no answer from {self.server}: {exc!r}") from exc

    async def _send(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, kind: str = ""
    ) -> dict[str, Any]:
        headers = self._headers.copy()
        if body is not None:
            headers["Content-Type"] = kind
        data = None if body is None else json.dumps(body).encode()
        try:
            async with self._client().request(
                method, self.server + path, data=data, headers=headers, timeout=_TIMEOUT
            ) as answer:
                text = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as exc:
            raise ApiError(0, f"no answer from {self.server}: {exc!r}") from exc
        if answer.status >= 400:
            raise ApiError(answer.status, _message(text))
        result: dict[str, Any] = json.loads(text)
        return result

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=self._tls, limit=0)
            self._session = aiohttp.ClientSession(connector=connector)
        return self._session


def _identity(user: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Headers that say who we are, beside a client certificate."""
    if user.get("token"):
        yield "Authorization", f"Bearer {user['token']}"
    if user.get("as"):
        yield "Impersonate-User", user["as"]
    for group in user.get("as-groups") or ():
        yield "Impersonate-Group", group


def _message(text: bytes) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text[:300].decode(errors="replace")


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next((entry for entry in entries if entry["name"] == name), {})


def _tls_context(cluster: Mapping[str, Any], user: Mapping[str, Any], base: Path) -> ssl.SSLContext:
    authority = _pem(cluster, "certificate-authority", base)
    context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate, key = _pem(user, "client-certificate", base), _pem(user, "client-key", base)
    if certificate and key:
        # The ssl module loads certificates from files only.
        with tempfile.NamedTemporaryFile() as file:
            file.write(certificate + b"\n" + key)
            file.flush()
            context.load_cert_chain(file.name)
    return context


def _pem(entry: Mapping[str, Any], name: str, base: Path) -> bytes | None:
    if entry.get(f"{name}-data"):
        return base64.b64decode(entry[f"{name}-data"])
    return (base / entry[name]).read_bytes() if entry.get(name) else None
