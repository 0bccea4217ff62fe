"""The reader's end of a transfer: handshakes, reads, notifications, heartbeats.

A peer is remembered by its engine id once a handshake succeeded, until its connection breaks. A
handshake that fails is not remembered, so every later request tries again.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from disaggpair_bed.simengine import wire
from disaggpair_bed.simengine.identity import Identity
from disaggpair_bed.simengine.job import Peer

HANDSHAKE_LIMIT_S = 5.0


class TransferFailure(Exception):
    """KV could not be moved."""


@dataclass
class Connection:
    """A peer that answered a handshake."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    clock_offset: float
    """The peer's clock minus ours."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def is_open(self) -> bool:
        """Whether neither side has closed, as far as is known here."""
        return not (self.writer.is_closing() or self.reader.at_eof())

    async def read(self, request_id: str, blocks: Sequence[int], reader: Identity) -> bytes:
        """Blocks of the peer; the peer's lease on them ends.

        Raises:
            TransferFailure: the connection broke, or a block is outside the peer's pool.
        """
        try:
            async with self.lock:
                message: dict[str, object] = {"op": "read", "request_id": request_id}
                message |= {"blocks": list(blocks), "identity": list(reader)}
                self.writer.write(wire.frame(message))
                header, payload = await wire.receive(self.reader)
        except (EOFError, OSError, ValueError) as error:
            self.writer.close()
            raise TransferFailure(f"transfer_failed: {error}") from error
        if "error" in header:
            raise TransferFailure(f"transfer_setup_failed: {header['error']}")
        return payload

    def send(self, header: dict[str, object]) -> None:
        """Send a message that has no answer."""
        self.writer.write(wire.frame(header))


class Peers:
    """The engines that this engine reads from."""

    def __init__(self, compatibility: str, block_size: int, clock: Callable[[], float]) -> None:
        self._compatibility = compatibility
        self._block_size = block_size
        self._clock = clock
        self._connections: dict[str, Connection] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def connect(self, peer: Peer) -> Connection:
        """A connection to a peer, after a handshake if it is not known yet.

        Raises:
            TransferFailure: nobody answers, or somebody else does.
        """
        async with self._locks.setdefault(peer.engine_id, asyncio.Lock()):
            known = self._connections.get(peer.engine_id)
            if known is not None and known.is_open:
                return known
            try:
                async with asyncio.timeout(HANDSHAKE_LIMIT_S):
                    connection = await self._handshake(peer)
            except (EOFError, OSError, ValueError, TypeError, KeyError) as error:
                raise TransferFailure(f"handshake_setup_failed: {error}") from error
            self._connections[peer.engine_id] = connection
            return connection

    async def _handshake(self, peer: Peer) -> Connection:
        reader, writer = await asyncio.open_connection(peer.host, peer.port)
        try:
            sent = self._clock()
            writer.write(wire.frame({"op": "hello"}))
            header, _ = await wire.receive(reader)
            offset = float(header["clock"]) - (sent + self._clock()) / 2
            self._check(header, peer)
        except BaseException:
            writer.close()
            raise
        return Connection(reader, writer, offset)

    def _check(self, header: dict[str, object], peer: Peer) -> None:
        if header["compatibility"] != self._compatibility:
            raise TransferFailure("handshake_failed: NIXL compatibility hash mismatch")
        if header["engine_id"] != peer.engine_id:
            raise TransferFailure("handshake_failed: Remote NIXL agent engine ID mismatch")
        if header["block_size"] != self._block_size:
            raise TransferFailure("handshake_failed: block sizes differ")

    async def close(self) -> None:
        """Close every connection."""
        for connection in self._connections.values():
            connection.writer.transport.abort()
        self._connections.clear()
