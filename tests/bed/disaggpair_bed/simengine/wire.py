"""Frames on the side channel: a length, a JSON header of that length, then a payload.

The header's `size` is the payload's length. Operations of the reading side:

| op        | fields                | answer                                                  |
|-----------|-----------------------|---------------------------------------------------------|
| hello     |                       | engine_id, compatibility, block_size, clock             |
| read      | request_id, blocks,   | payload of the blocks, or `error`; the lease ends       |
|           | identity              |                                                         |
| notify    | request_id            | none: the lease ends                                    |
| heartbeat | request_ids           | none: the leases are renewed                            |
"""

import asyncio
import hashlib
import struct
from typing import Any

import orjson

from disaggpair_bed.simengine.release import Release
from disaggpair_connector.settings import Settings

_LENGTH = struct.Struct(">I")
_LARGEST_HEADER = 64 * 1024 * 1024


def compatibility(release: Release, model: str, pair: Settings | None) -> str:
    """What both sides of a transfer must have in common, as a digest.

    `pair` are the settings of our connector, of which both sides need the same direction.
    """
    text = f"{release}|{release.connector_version}|{model}"
    if pair is not None:
        text += f"|disaggpair, bidirectional {pair.bidirectional}"
    return hashlib.sha256(text.encode()).hexdigest()


def frame(header: dict[str, Any], payload: bytes = b"") -> bytes:
    """Bytes of one frame."""
    encoded = orjson.dumps({**header, "size": len(payload)})
    return _LENGTH.pack(len(encoded)) + encoded + payload


async def receive(reader: asyncio.StreamReader) -> tuple[dict[str, Any], bytes]:
    """Read one frame.

    Raises:
        EOFError: the peer closed, in mid frame or between frames.
        ValueError: not a frame.
    """
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > _LARGEST_HEADER:
        raise ValueError(f"a header of {length} bytes")
    header = orjson.loads(await reader.readexactly(length))
    if not isinstance(header, dict):
        raise ValueError("the header is no object")
    size = header.pop("size", 0)
    return header, await reader.readexactly(size) if size else b""
