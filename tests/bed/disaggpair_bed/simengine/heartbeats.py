"""D's side of P's lease: which peers have to be told that their blocks are still wanted."""

from collections.abc import Mapping
from typing import Any

from disaggpair_bed.simengine.job import Heartbeat, Peer

_SHORTEST_INTERVAL_S = 0.05


class Heartbeats:
    """Requests that wait for a peer's blocks, from their arrival until the blocks are here."""

    def __init__(self, lease_s: float, *, enabled: bool = True) -> None:
        self._interval_s = max(lease_s // 6, _SHORTEST_INTERVAL_S)
        self._enabled = enabled
        self._waits: dict[str, tuple[Peer, str]] = {}
        self._last: float | None = None

    def start(self, request_id: str, params: Mapping[str, Any] | None) -> None:
        """A request arrived; without all of the peer's keys, tp_size included, none is sent."""
        if not self._enabled or not params or not params.get("do_remote_prefill"):
            return
        keys = ("remote_engine_id", "remote_request_id", "remote_host", "remote_port", "tp_size")
        engine_id, remote_id, host, port, tp_size = (params.get(key) for key in keys)
        if None in (engine_id, remote_id, host, port, tp_size) or not isinstance(port, int):
            return
        self._waits[request_id] = (Peer(str(engine_id), str(host), port), str(remote_id))

    @property
    def last(self) -> float | None:
        """When the last ones were sent."""
        return self._last

    def stop(self, request_id: str) -> None:
        """The blocks are here, or nobody wants them any more."""
        self._waits.pop(request_id, None)

    def next_deadline(self) -> float | None:
        """When the next heartbeats are due."""
        if not self._waits:
            return None
        return (self._last + self._interval_s) if self._last is not None else 0.0

    def due(self, now: float) -> list[Heartbeat]:
        """Heartbeats to send now, one for each peer."""
        deadline = self.next_deadline()
        if deadline is None or now < deadline:
            return []
        self._last = now
        by_peer: dict[Peer, list[str]] = {}
        for peer, remote_id in self._waits.values():
            by_peer.setdefault(peer, []).append(remote_id)
        return [Heartbeat(peer, tuple(ids)) for peer, ids in by_peer.items()]
