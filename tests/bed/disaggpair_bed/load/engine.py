"""A pair of engines that answer at once, or after fixed times: nothing but the P/D contract.

    python -m disaggpair_bed.load.engine --prefill-port 8100 --decode-port 8200

Both roles are in one process. A leg whose transfer parameters are not what the role needs gets a
400, so a router that forgets one of them cannot win. `GET /legs` counts what was served.
"""

import argparse
import asyncio
import json
import time
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, cast

import uvloop

from disaggpair_bed.load.granting import HOST, Granting, grants

_NUMBERS = count(1)
_HEAD_END = b"\r\n\r\n"
_BYTES_PER_BLOCK = 64
"""Four bytes a token, 16 tokens a block."""
_MAX_BLOCKS = 8192


@dataclass
class Shape:
    """How answers look and how long they take."""

    prefill_s: float = 0.0
    first_s: float = 0.0
    """From a D leg's request to its first chunk."""
    gap_s: float = 0.0
    """Between two chunks; at 0 they come in one piece."""
    chunks: int = 8
    legs: dict[str, int] = field(default_factory=lambda: {"prefill": 0, "decode": 0, "wrong": 0})


def transfer_params(number: int, blocks: int, *, remote_prefill: bool) -> dict[str, Any]:
    """vLLM's parameters; `remote_prefill` makes those that P gives."""
    return {
        "do_remote_prefill": remote_prefill,
        "do_remote_decode": not remote_prefill,
        "remote_block_ids": [list(range(number % 97, number % 97 + blocks))],
        "remote_engine_id": "prefill" if remote_prefill else "decode",
        "remote_request_id": f"chatcmpl-{number:032x}",
        "remote_host": "127.0.0.1",
        "remote_port": 5600,
        "tp_size": 1,
        "remote_num_tokens": blocks * 16,
    }


def compact(value: Any) -> bytes:
    """JSON as vLLM's server writes it."""
    return json.dumps(value, separators=(",", ":")).encode()


def chunk(text: str, **more: Any) -> dict[str, Any]:
    """One chunk of a stream."""
    return {
        "id": "chatcmpl-0",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "toy",
        "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}],
        **more,
    }


def framed(event: bytes) -> bytes:
    """One piece of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(event), event)


class Leg(asyncio.Protocol):
    """One connection."""

    def __init__(self, role: str, shape: Shape, granting: Granting | None) -> None:
        self._role = role
        self._shape = shape
        self._granting = granting
        self._held = bytearray()
        self._needed = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._held += data
        if not self._needed:
            end = self._held.find(_HEAD_END)
            if end < 0:
                return
            head = bytes(self._held[: end + 2]).lower()
            at = head.find(b"\r\ncontent-length:")
            length = int(head[at + 17 : head.index(b"\r\n", at + 2)]) if at >= 0 else 0
            self._needed = end + 4 + length
        if len(self._held) >= self._needed:
            request, self._held = self._held[: self._needed], self._held[self._needed :]
            self._needed = 0
            self._serve(request)

    def _serve(self, request: bytearray) -> None:
        if request.startswith(b"GET"):
            found = self._shape.legs if request.startswith(b"GET /legs") else {}
            self._whole(compact(found))
        elif self._role == "prefill":
            self._prefill(request)
        else:
            self._decode(request)

    def _prefill(self, request: bytearray) -> None:
        if not (
            _has(request, b'"do_remote_decode"', b"true") and _has(request, b'"max_tokens"', b"1")
        ):
            self._wrong()
            return
        self._shape.legs["prefill"] += 1
        answer = self._answer(len(request), remote_prefill=True)
        self._later(self._shape.prefill_s, lambda: self._whole(answer))

    def _decode(self, request: bytearray) -> None:
        if not _has(request, b'"do_remote_prefill"', b"true"):
            self._wrong()
            return
        self._shape.legs["decode"] += 1
        shape = self._shape
        size = len(request)
        if _has(request, b'"stream"', b"true"):
            last = self._last(size, request)
            self._later(shape.first_s, lambda: self._stream(0, last))
        else:
            answer = self._answer(size, remote_prefill=False, request=request)
            wait_s = shape.first_s + shape.gap_s * (shape.chunks - 1)
            self._later(wait_s, lambda: self._whole(answer))

    def _later(self, seconds: float, act: Any) -> None:
        if seconds:
            asyncio.get_running_loop().call_later(seconds, act)
        else:
            act()

    def _answer(
        self, size: int, *, remote_prefill: bool, request: bytearray | None = None
    ) -> bytes:
        tokens = size // 4
        answer = {
            "id": "chatcmpl-0",
            "object": "chat.completion",
            "created": 1,
            "model": "toy",
            "choices": [
                {
                    "index": 0,
                    "message": {
                        "role": "assistant",
                        "content": " ".join(["word"] * self._shape.chunks),
                    },
                    "finish_reason": "stop",
                }
            ],
            "usage": {"prompt_tokens": tokens, "completion_tokens": 8, "total_tokens": tokens + 8},
            "kv_transfer_params": self._params(size, remote_prefill, request),
        }
        return compact(answer)

    def _params(self, size: int, remote_prefill: bool, request: bytearray | None) -> dict[str, Any]:
        number = next(_NUMBERS)
        blocks = min(max(1, size // _BYTES_PER_BLOCK), _MAX_BLOCKS)
        params = transfer_params(number, blocks, remote_prefill=remote_prefill)
        if self._granting is not None and request is not None:
            params |= self._granting.grant(number, blocks, request)
        return params

    def _last(self, size: int, request: bytearray) -> bytes:
        """The finish chunk, which holds the handle."""
        ended = chunk("", kv_transfer_params=self._params(size, False, request))
        ended["choices"][0]["finish_reason"] = "stop"
        return (
            framed(b"data: " + compact(ended) + b"\n\n") + framed(b"data: [DONE]\n\n") + framed(b"")
        )

    def _stream(self, number: int, last: bytes) -> None:
        out = [_STREAM_HEAD] if not number else []
        shape = self._shape
        while number < shape.chunks:
            stamped = chunk(f"{time.monotonic_ns()} ", kv_transfer_params=None)
            out.append(framed(b"data: " + compact(stamped) + b"\n\n"))
            number += 1
            if shape.gap_s and number < shape.chunks:
                asyncio.get_running_loop().call_later(shape.gap_s, self._stream, number, last)
                break
        else:
            number += 1
        if number > shape.chunks or not shape.gap_s:
            out.append(last)
        elif number == shape.chunks:
            asyncio.get_running_loop().call_later(shape.gap_s, self._stream, number, last)
        self._transport.write(b"".join(out))

    def _whole(self, body: bytes) -> None:
        self._transport.write(_WHOLE_HEAD % len(body) + body)

    def _wrong(self) -> None:
        self._shape.legs["wrong"] += 1
        body = b'{"error":{"message":"wrong transfer parameters","code":400}}'
        self._transport.write(
            b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%s" % (len(body), body)
        )


_WHOLE_HEAD = (
    b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n"
)
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)


def _has(request: bytearray, key: bytes, value: bytes) -> bool:
    """Whether the body has the member, wherever it stands and with or without a blank."""
    return any(key + colon + value in request for colon in (b":", b": "))


async def _serve(args: argparse.Namespace) -> None:
    shape = Shape(args.prefill_s, args.first_s, args.gap_s, args.chunks)
    loop = asyncio.get_running_loop()
    with grants(args.host, args.lease_port, args.lease_ttl, args.granted) as granting:
        servers = [
            await loop.create_server(
                partial(Leg, role, shape, granting), args.host, port, backlog=2048
            )
            for role, port in (("prefill", args.prefill_port), ("decode", args.decode_port))
        ]
        await asyncio.gather(*(server.serve_forever() for server in servers))


def main() -> None:
    parser = argparse.ArgumentParser(description="Engines that do no work.")
    parser.add_argument("--prefill-port", type=int, required=True)
    parser.add_argument("--decode-port", type=int, required=True)
    parser.add_argument("--prefill-s", type=float, default=0.0)
    parser.add_argument("--first-s", type=float, default=0.0)
    parser.add_argument("--gap-s", type=float, default=0.0)
    parser.add_argument("--chunks", type=int, default=8)
    parser.add_argument("--host", default=HOST)
    parser.add_argument("--lease-port", type=int, default=0, help="grant leases, told of there")
    parser.add_argument("--lease-ttl", type=float, default=5.0)
    parser.add_argument("--granted", type=int, default=0, help="leases that are there at once")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
