"""A lease listener as a router sees it."""

import json
from typing import Any, Literal

import aiohttp

from disaggpair_connector import contract

Json = dict[str, Any]


class LeaseView:
    """The leases of one engine.

    Args:
        session: the connections.
        url: of the listener, such as `http://127.0.0.1:5700`.
        key: of the router.
    """

    def __init__(self, session: aiohttp.ClientSession, url: str, key: str) -> None:
        self._session = session
        self._url = url + "/leases"
        self._headers = {"Authorization": f"Bearer {key}"}

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
