"""An engine's lease listener as a router sees it."""

import json
from typing import Any, Final, Literal

import aiohttp

from disaggpair_bed.cpu.engine import SIDE_CHANNEL_PORT, Engine
from disaggpair_connector import contract

LEASE_KEY: Final = "key-of-the-bed"
LEASE_ENVIRONMENT: Final = {contract.LEASE_KEY_ENV: LEASE_KEY}
"""For the options of an engine whose leases are listed and claimed."""

Json = dict[str, Any]


class Leases:
    """The leases of one engine.

    Args:
        session: the connections.
        engine: with our connector and `LEASE_ENVIRONMENT`.
    """

    def __init__(self, session: aiohttp.ClientSession, engine: Engine) -> None:
        self._session = session
        port = SIDE_CHANNEL_PORT + contract.LEASE_PORT_OFFSET
        self._url = f"http://{engine.address}:{port}/leases"
        self._headers = {"Authorization": f"Bearer {LEASE_KEY}"}

    async def listing(self) -> Json:
        """All leases, their counts, the epoch and the sequence."""
        async with self._session.get(self._url, headers=self._headers) as response:
            response.raise_for_status()
            answer: Json = await response.json()
        return answer

    async def of(self, conversation: str) -> Json:
        """The newest lease of a conversation; KeyError without one."""
        found = [
            lease
            for lease in (await self.listing())["leases"]
            if lease["conversation"] == conversation
        ]
        if not found:
            raise KeyError(conversation)
        newest: Json = max(found, key=lambda lease: lease["created"])
        return newest

    async def claim(self, lease: str, purpose: Literal["read", "direct"] = "read") -> Any:
        """The parameters of a claimed lease; the status of a refusal."""
        async with self._session.post(
            f"{self._url}/{lease}/claim", json={"for": purpose}, headers=self._headers
        ) as response:
            if response.status != 200:
                return response.status
            return (await response.json())[contract.KV_TRANSFER_PARAMS]

    async def release(self, lease: str) -> int:
        """Give a lease up; the status of the answer."""
        url = f"{self._url}/{lease}"
        async with self._session.delete(url, headers=self._headers) as response:
            return response.status

    async def until(self, kind: str, since: int) -> Json:
        """The first event of that type after a sequence number of `listing`."""
        query = {"epoch": (await self.listing())["epoch"], "since": str(since)}
        async with self._session.get(
            f"{self._url}/watch", params=query, headers=self._headers
        ) as response:
            response.raise_for_status()
            async for line in response.content:
                event: Json = json.loads(line)
                if event.get("type") == kind:
                    return event
        raise TimeoutError(f"no lease is {kind}")
