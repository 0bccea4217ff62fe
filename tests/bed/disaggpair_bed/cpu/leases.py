"""The lease listener of a real engine."""

from typing import Final

import aiohttp

from disaggpair_bed.cpu.engine import SIDE_CHANNEL_PORT, Engine
from disaggpair_bed.leaseview import LeaseView
from disaggpair_connector import contract

LEASE_KEY: Final = "lease-key-of-the-bed"
LEASE_ENVIRONMENT: Final = {contract.LEASE_KEY_ENV: LEASE_KEY}
"""For the options of an engine whose leases are listed and claimed."""


class Leases(LeaseView):
    """The leases of one engine.

    Args:
        session: the connections.
        engine: with our connector and `LEASE_ENVIRONMENT`.
    """

    def __init__(self, session: aiohttp.ClientSession, engine: Engine) -> None:
        port = SIDE_CHANNEL_PORT + contract.LEASE_PORT_OFFSET
        super().__init__(session, f"http://{engine.address}:{port}", LEASE_KEY)
