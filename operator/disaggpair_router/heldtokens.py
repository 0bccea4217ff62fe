"""Tokens that handles keep in the memory of each decode engine, and which handle to give up. Pure.

`session` tells of every handle that it takes in or lets go.
"""

from collections import OrderedDict


class HeldTokens:
    """Handles by decode engine, the least recently stored first."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._handles: dict[str, OrderedDict[bytes, int]] = {}
        self._sums: dict[str, int] = {}

    def add(self, endpoint: str, key: bytes, tokens: int) -> None:
        """A handle came; a conversation has one at a time."""
        self._handles.setdefault(endpoint, OrderedDict())[key] = tokens
        self._sums[endpoint] = self._sums.get(endpoint, 0) + tokens

    def remove(self, endpoint: str, key: bytes) -> None:
        """A handle that was added is gone."""
        handles = self._handles[endpoint]
        self._sums[endpoint] -= handles.pop(key)
        if not handles:
            del self._handles[endpoint], self._sums[endpoint]

    def excess(self, endpoint: str) -> bytes | None:
        """The conversation to give up first while the engine's handles are over the bound.

        None when they are within it, or only one is left: a single turn may be larger.
        """
        handles = self._handles.get(endpoint)
        if self._most is None or handles is None or len(handles) == 1:
            return None
        if self._sums[endpoint] <= self._most:
            return None
        return next(iter(handles))
