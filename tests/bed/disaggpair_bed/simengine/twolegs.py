"""The two legs of a turn, as short as they can be: drives engines in tests without a router."""

import asyncio
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

TURN_1 = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}
"""Parameters of a P leg that has nothing to read."""


async def until(condition: Callable[[], object], limit_s: float = 10.0) -> None:
    """Wait for a condition of an engine in this process.

    Raises:
        TimeoutError: it does not hold by then.
    """
    async with asyncio.timeout(limit_s):
        for _ in itertools.count():
            if condition():
                return
            await asyncio.sleep(0.002)


@dataclass(frozen=True)
class Answer:
    """What one leg said."""

    status: int
    text: str = ""
    finish_reason: str | None = None
    params: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    """The error body, or the error event of a stream."""
    done: bool = True
    """A stream ended with [DONE]."""
    chunks: tuple[dict[str, Any], ...] = ()


@dataclass
class Client:
    """Sends legs; use one per test, around one HTTP session."""

    session: aiohttp.ClientSession
    path: str = "/v1/chat/completions"

    async def post(self, url: str, body: Mapping[str, Any], **headers: str) -> Answer:
        """One request, streamed if the body says so."""
        async with self.session.post(url + self.path, json=body, headers=headers) as response:
            if response.content_type == "text/event-stream":
                return _streamed(response.status, await response.read())
            return _whole(response.status, await response.read())

    async def prefill(
        self, url: str, body: Mapping[str, Any], handle: Mapping[str, Any] | None = None
    ) -> Answer:
        """The P leg of a turn."""
        rest = {key: value for key, value in body.items() if key not in _DROPPED}
        params = dict(handle or TURN_1)
        return await self.post(url, {**rest, "max_tokens": 1, "kv_transfer_params": params})

    async def turn(
        self,
        prefill_url: str,
        decode_url: str,
        body: Mapping[str, Any],
        handle: Mapping[str, Any] | None = None,
    ) -> Answer:
        """Both legs; the answer is the D leg's, its params are the next turn's handle."""
        first = await self.prefill(prefill_url, body, handle)
        if first.status != 200:
            return first
        return await self.post(decode_url, {**body, "kv_transfer_params": first.params})


@dataclass
class Conversation:
    """A chat that keeps its history and its handle."""

    client: Client
    prefill_url: str
    decode_url: str
    settings: dict[str, Any] = field(default_factory=dict)
    messages: list[dict[str, Any]] = field(default_factory=list)
    handle: dict[str, Any] | None = None

    async def say(self, text: str, **settings: Any) -> Answer:
        """One turn."""
        self.messages.append({"role": "user", "content": text})
        body = {"messages": self.messages, **self.settings, **settings}
        answer = await self.client.turn(self.prefill_url, self.decode_url, body, self.handle)
        self.handle = answer.params
        self.messages.append({"role": "assistant", "content": answer.text})
        return answer


_DROPPED = {
    "stream",
    "stream_options",
    "min_tokens",
    "max_completion_tokens",
    "n",
    "ignore_eos",
    "stop",
    "stop_token_ids",
    "logprobs",
}


def _whole(status: int, raw: bytes) -> Answer:
    body = orjson.loads(raw) if raw else {}
    if status != 200:
        return Answer(status, error=body.get("error"))
    choice = body["choices"][0]
    text = choice["message"]["content"] if "message" in choice else choice["text"]
    return Answer(
        status,
        text or "",
        choice["finish_reason"],
        body.get("kv_transfer_params"),
        body.get("usage"),
        chunks=(body,),
    )


def _streamed(status: int, raw: bytes) -> Answer:
    events = [part.removeprefix(b"data: ") for part in raw.split(b"\n\n") if part]
    done = bool(events) and events[-1] == b"[DONE]"
    chunks = tuple(orjson.loads(part) for part in events if part != b"[DONE]")
    text = ""
    reason = params = usage = error = None
    for chunk in chunks:
        error = chunk.get("error") or error
        usage = chunk.get("usage") or usage
        params = chunk.get("kv_transfer_params") or params
        for choice in chunk.get("choices", ())[:1]:
            text += choice.get("text") or choice.get("delta", {}).get("content") or ""
            reason = choice["finish_reason"] or reason
    return Answer(status, text, reason, params, usage, error, done, chunks)
