"""Leases of the stand-in's D: a real table behind a real listener, and blocks that nobody has."""

import re
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_bytes
from typing import Any

from disaggpair_connector.book import LeaseBook
from disaggpair_connector.digest import Digests
from disaggpair_connector.lease import Lease
from disaggpair_connector.listener import LeaseListener
from disaggpair_router.leases.place import Place

KEY = "load-bench-lease-key"
"""`DISAGGPAIR_LEASE_KEY` of a router before these engines."""
HOST = "127.0.0.1"
BLOCK_SIZE = 16
_CONVERSATION = re.compile(rb'"conversation": ?"([^"]*)"')
_NO_DIGESTS = Digests(tokens=0, chunks=b"", tail=b"")


class Granting:
    """Grants a lease for each D leg; each is over `ttl_s` later."""

    def __init__(self, book: LeaseBook, port: int) -> None:
        self._book = book
        self._port = port

    def grant(self, number: int, blocks: int, request: bytearray) -> dict[str, Any]:
        """Our connector's part of D's parameters."""
        found = _CONVERSATION.search(request)
        self._book.sweep()
        self._book.take_ended()
        lease = self._granted(f"lease-{number:x}", blocks, found[1].decode() if found else None)
        return {"disaggpair": {"lease": lease.id, "token": lease.token, "port": self._port}}

    def fill(self, count: int) -> None:
        """Grant many leases at once, each of another conversation of a router's."""
        for number in range(count):
            place = Place(token_bytes(16), token_bytes(8), token_bytes(16), number % 40)
            self._granted(f"old-{number:x}", 8, place.text())

    def _granted(self, name: str, blocks: int, conversation: str | None) -> Lease:
        return self._book.grant(
            id=name,
            conversation=conversation,
            tokens=blocks * BLOCK_SIZE,
            block_ids=(array("I", range(blocks)),),
            digests=_NO_DIGESTS,
            handle={
                "do_remote_prefill": False,
                "do_remote_decode": True,
                "remote_block_ids": [list(range(blocks))],
                "remote_engine_id": "decode",
                "remote_request_id": f"chatcmpl-{name:0>32}",
                "remote_host": HOST,
                "remote_port": 5600,
                "remote_num_tokens": blocks * BLOCK_SIZE,
                "tp_size": 1,
            },
            divisible=True,
            pinned=None,
        )


@contextmanager
def grants(host: str, port: int, ttl_s: float, count: int) -> Iterator[Granting | None]:
    """Serve leases, `count` at first, at a port while the block runs; None for port 0."""
    if not port:
        yield None
        return
    book = LeaseBook(epoch="load", ttl_s=ttl_s, claim_s=2.0, read_s=2.0)
    listener = LeaseListener(book, host=host, port=port, key=KEY, block_size=BLOCK_SIZE, read_s=2.0)
    granting = Granting(book, port)
    granting.fill(count)
    listener.start()
    try:
        yield granting
    finally:
        listener.stop()
