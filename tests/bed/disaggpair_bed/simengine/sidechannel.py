"""The owner's end of a transfer: answers handshakes, gives blocks, takes notifications."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from disaggpair_bed.simengine import wire
from disaggpair_bed.simengine.core import EngineCore
from disaggpair_bed.simengine.identity import Identity


class SideChannel:
    """A TCP listener in front of one engine core."""

    def __init__(
        self,
        core: EngineCore,
        engine_id: str,
        compatibility: str,
        *,
        clock: Callable[[], float],
        changed: Callable[[], None],
        thawed: Callable[[], Awaitable[None]],
    ) -> None:
        """An owner's end.

        `changed` is called when a peer's message may let a waiting request go on, `thawed` is
        awaited before a message is read.
        """
        self._thawed = thawed
        self._core = core
        self._clock = clock
        self._changed = changed
        self.engine_id = engine_id
        self.compatibility = compatibility
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port, which is a free one for port 0."""
        self._server = await asyncio.start_server(self._serve, host, port)
        listening: int = self._server.sockets[0].getsockname()[1]
        return listening

    async def stop(self) -> None:
        """Close the listener and every connection."""
        if self._server is not None:
            self._server.close()
        for writer in tuple(self._writers):
            writer.transport.abort()
        if self._server is not None:
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                header, _ = await wire.receive(reader)
                await self._thawed()
                reply = self._handle(header)
                if reply is not None:
                    writer.write(reply)
                    await writer.drain()
        except (EOFError, OSError, ValueError, KeyError, TypeError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    def _handle(self, header: dict[str, Any]) -> bytes | None:
        operation = header["op"]
        if operation == "hello":
            return wire.frame(
                {
                    "engine_id": self.engine_id,
                    "compatibility": self.compatibility,
                    "block_size": self._core.settings.block_size,
                    "clock": self._clock(),
                }
            )
        if operation == "heartbeat":
            self._core.connector.serve_heartbeat(header["request_ids"], self._clock())
            return None
        reply = None
        if operation == "read":
            reader = Identity(*header["identity"])
            reply = self._read(header["request_id"], header["blocks"], reader)
        else:
            self._core.connector.serve_notify(header["request_id"])
        self._changed()
        return reply

    def _read(self, request_id: str, blocks: list[int], reader: Identity) -> bytes:
        try:
            return wire.frame({}, self._core.connector.serve_read(request_id, blocks, reader))
        except IndexError as error:
            return wire.frame({"error": str(error)})
