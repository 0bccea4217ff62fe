"""Pod addresses of one node. Pure."""

import ipaddress
from collections.abc import Iterator


class NoAddress(Exception):
    """Every address of the node's range is in use."""


class AddressPool:
    """Addresses below a prefix such as `127.11.0`. One that was given back is used again last,
    so that a late connection to a pod that is gone does not reach another one soon."""

    def __init__(self, prefix: str, node_address: str) -> None:
        self._prefix = prefix
        self._network = ipaddress.IPv4Network(_network(prefix))
        self._used = {node_address}
        self._order = self._round()

    def take(self, wanted: str = "") -> str:
        """The wanted address if it is free, else the next one; raises NoAddress."""
        if wanted.startswith(self._prefix + ".") and wanted not in self._used:
            self._used.add(wanted)
            return wanted
        for _ in range(self._network.num_addresses):
            address = next(self._order)
            if address not in self._used:
                self._used.add(address)
                return address
        raise NoAddress(f"all addresses of {self._network} are in use")

    def give_back(self, address: str) -> None:
        """Call when no process of the pod is left."""
        self._used.discard(address)

    def _round(self) -> Iterator[str]:
        while True:
            yield from map(str, self._network.hosts())


def _network(prefix: str) -> str:
    octets = prefix.split(".")
    return ".".join(octets + ["0"] * (4 - len(octets))) + f"/{8 * len(octets)}"
