"""Carries out the actions of probes and lifecycle hooks."""

import asyncio
import ssl
from collections.abc import Mapping

import aiohttp

from disaggpair_bed.node.errors import SpecError, StartError
from disaggpair_bed.node.process import Process
from disaggpair_bed.node.spec import Container, Handler, Object, port_number

_BODY_SHOWN = 200


class Handlers:
    """Runs handlers; keeps no connections, as a probe must meet the server anew each time."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def aclose(self) -> None:
        """Release the client."""
        if self._session is not None:
            await self._session.close()

    async def run(
        self,
        handler: Handler,
        container: Container,
        pod_ip: str,
        process: Process,
        timeout_s: float | None,
    ) -> str | None:
        """None when it succeeded, else what went wrong. `timeout_s` None waits for ever."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._run(handler, container, pod_ip, process)
        except TimeoutError:
            return f"no answer within {timeout_s:g} s"
        except aiohttp.ClientConnectorError as exc:
            return f"{exc.host}:{exc.port}: {exc.os_error.strerror or exc.os_error}"
        except (SpecError, StartError, aiohttp.ClientError, OSError) as exc:
            return str(exc) or repr(exc)

    async def _run(
        self, handler: Handler, container: Container, pod_ip: str, process: Process
    ) -> str | None:
        if handler.exec is not None:
            code, output = await process.exec(handler.exec)
            return f"command ended with {code}: {output.strip()}" if code else None
        if handler.http is not None:
            return await self._get(handler.http, container, pod_ip)
        if handler.tcp is not None:
            port = port_number(handler.tcp["port"], container)
            _, writer = await asyncio.open_connection(handler.tcp.get("host") or pod_ip, port)
            writer.close()
            return None
        if handler.sleep_s is not None:
            await asyncio.sleep(handler.sleep_s)
            return None
        return f"{handler.unsupported} is not supported; allowed: httpGet, tcpSocket, exec, sleep"

    async def _get(self, http: Object, container: Container, pod_ip: str) -> str | None:
        scheme = str(http.get("scheme") or "HTTP").lower()
        port = port_number(http["port"], container)
        path = "/" + str(http.get("path") or "/").lstrip("/")
        url = f"{scheme}://{http.get('host') or pod_ip}:{port}{path}"
        headers = {"User-Agent": "kube-probe/1.36", "Accept": "*/*"}
        headers |= _headers(http)
        async with self._client().get(url, headers=headers, ssl=_unverified(scheme)) as answer:
            body = await answer.content.read(_BODY_SHOWN)
            if 200 <= answer.status < 400:
                return None
            return f"{url} answered {answer.status}: {body.decode(errors='replace')}"

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(force_close=True, limit=0)
            timeout = aiohttp.ClientTimeout(total=None)
            self._session = aiohttp.ClientSession(
                connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._session


def _headers(http: Object) -> Mapping[str, str]:
    return {item["name"]: item["value"] for item in http.get("httpHeaders") or ()}


def _unverified(scheme: str) -> ssl.SSLContext | bool:
    if scheme != "https":
        return True
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
