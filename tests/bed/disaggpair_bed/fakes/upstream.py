"""An engine that answers what a test wrote, byte for byte, and records what it was asked.

For what the simulated engine cannot be made to do: odd bytes, odd timing, odd JSON.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

Script = Callable[["Recorded"], Awaitable[web.StreamResponse]]


@dataclass
class Recorded:
    """One request as it came."""

    http: web.Request
    body: dict[str, Any]

    @property
    def headers(self) -> Mapping[str, str]:
        """Request headers, looked up without regard to case."""
        return self.http.headers

    @property
    def params(self) -> Any:
        """The transfer parameters; None when the key is missing."""
        return self.body.get("kv_transfer_params")


@dataclass
class ScriptedEngine:
    """A server on a loopback port. `script` may be replaced at any time."""

    script: Script
    requests: list[Recorded] = field(default_factory=list)
    healthy: bool = True
    lost_connections: int = 0
    """Requests whose client closed before the answer was complete."""
    url: str = ""

    async def _serve(self, http: web.Request) -> web.StreamResponse:
        raw = await http.read()
        recorded = Recorded(http, orjson.loads(raw) if raw else {})
        self.requests.append(recorded)
        try:
            return await self.script(recorded)
        except (asyncio.CancelledError, ConnectionError):
            self.lost_connections += 1
            raise

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=200 if self.healthy else 503)


@asynccontextmanager
async def scripted_engine(script: Script, *, port: int = 0) -> AsyncIterator[ScriptedEngine]:
    """Serve a script until the block ends."""
    engine = ScriptedEngine(script)
    app = web.Application(client_max_size=2**30)
    app.router.add_get("/health", engine._health)
    app.router.add_get("/v1/models", engine._serve)
    app.router.add_post("/{path:.*}", engine._serve)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    engine.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield engine
    finally:
        await runner.cleanup()


def prefill_params(**changes: Any) -> dict[str, Any]:
    """What P answers with, as D takes it."""
    return {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_block_ids": [[11, 12]],
        "remote_engine_id": "P-engine",
        "remote_request_id": "chatcmpl-p-1a2b3c4d",
        "remote_host": "10.0.0.4",
        "remote_port": 5600,
        "tp_size": 1,
        "dcp_size": 1,
        "pp_size": 1,
        "remote_num_tokens": 31,
        "remote_blocks_expiry_time": None,
        "remote_registration_generation": 0,
        "transfer_mode": "pull",
        "remote_prefill_cached_tokens": 0,
        **changes,
    }


def decode_handle(**changes: Any) -> dict[str, Any]:
    """A handle as D gives it and P takes it."""
    return {
        "do_remote_prefill": False,
        "do_remote_decode": True,
        "remote_block_ids": [[71, 72, 73]],
        "remote_engine_id": "D-engine",
        "remote_request_id": "chatcmpl-d-5e6f7a8b",
        "remote_host": "10.0.0.7",
        "remote_port": 5600,
        "tp_size": 1,
        "dcp_size": 1,
        "pp_size": 1,
        "remote_num_tokens": 47,
        "remote_blocks_expiry_time": 91234.5,
        "remote_registration_generation": 0,
        "transfer_mode": "pull",
        **changes,
    }


def completion(
    params: Any = None, text: str = "Hello there", *, reason: str = "stop", **message: Any
) -> dict[str, Any]:
    """A whole chat completion."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text, **message},
                "finish_reason": reason,
            }
        ],
        "usage": {"prompt_tokens": 40, "completion_tokens": 8, "total_tokens": 48},
        "kv_transfer_params": params,
    }


def chat_events(handle: Any = None, text: str = "Hello there", *, reason: str = "stop") -> bytes:
    """A chat stream as vLLM 0.33 writes it: the key with null in every later chunk."""
    first = text[: len(text) // 2]
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]},
        _chunk({"content": first}),
        _chunk({"content": text[len(first) :]}),
        _chunk({"content": ""}, reason, handle),
    ]
    events = [b"data: " + orjson.dumps(chunk) + b"\n\n" for chunk in chunks]
    return b"".join(events) + b"data: [DONE]\n\n"


def _chunk(delta: dict[str, Any], reason: str | None = None, params: Any = None) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
        "kv_transfer_params": params,
    }


def answers(body: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Script:
    """A script that always gives the same JSON."""

    async def script(_: Recorded) -> web.StreamResponse:
        return web.Response(
            body=orjson.dumps(body),
            status=status,
            content_type="application/json",
            headers=headers,
        )

    return script


def in_turn(*scripts: Script) -> Script:
    """A script that plays several, one per request; the last one goes on."""
    left = list(scripts)

    async def script(recorded: Recorded) -> web.StreamResponse:
        return await (left.pop(0) if len(left) > 1 else left[0])(recorded)

    return script


def streams(*pieces: bytes, cut: bool = False) -> Script:
    """A script that writes the pieces one by one, and closes without an end when `cut`."""

    async def script(recorded: Recorded) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(recorded.http)
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(0)
        if cut and recorded.http.transport is not None:
            recorded.http.transport.close()
        return response

    return script


def decoding(text: str = "Hello there", **handle: Any) -> Script:
    """A decode engine: whole or streamed as asked, with a handle when it got parameters."""

    async def script(recorded: Recorded) -> web.StreamResponse:
        params = decode_handle(**handle) if recorded.params else None
        if recorded.body.get("stream"):
            return await streams(chat_events(params, text))(recorded)
        return await answers(completion(params, text))(recorded)

    return script


def prefilling(**params: Any) -> Script:
    """A prefill engine that always works."""
    return answers(completion(prefill_params(**params), "H", reason="length"))


async def resets(recorded: Recorded) -> web.StreamResponse:
    """A script that closes the connection without an answer."""
    if recorded.http.transport is not None:
        recorded.http.transport.close()
    raise ConnectionResetError


async def hangs(_: Recorded) -> web.StreamResponse:
    """A script that never answers."""
    await asyncio.Event().wait()
    raise AssertionError


def failing(status: int, message: str = "boom at http://10.0.0.4:8000/x", **headers: str) -> Script:
    """An engine's error, whose message names an address that no client may see."""
    body = {"error": {"message": message, "type": "T", "param": None, "code": status}}
    return answers(body, status=status, headers=headers)


def engine_ids(engine: ScriptedEngine) -> list[Any]:
    """Engine ids in the parameters of its requests: None for a first turn, `absent` without any."""
    return [(one.params or {}).get("remote_engine_id", "absent") for one in engine.requests]
