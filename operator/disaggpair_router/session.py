"""The conversations a router remembers: one handle each, usable once, for a time. Pure.

The clock is passed in as seconds of a monotonic clock. The table is a cache: losing an entry
costs one recomputation, so a bound is kept by forgetting, never by refusing a turn.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from disaggpair_router.answer import Answer
from disaggpair_router.heldtokens import HeldTokens
from disaggpair_router.history import History, Mark
from disaggpair_router.kv import Api, Handle

MissReason = Literal[
    "first_turn",
    "expired",
    "edited",
    "shorter",
    "reasoning",
    "tools",
    "whitespace",
    "text_prompt",
    "scope",
    "claimed",
    "displaced",
    "gone",
    "not_worth",
    "unreachable",
    "no_handle",
    "other_engine",
    "refused",
    "paused",
    "unsupported",
    "off",
    "no_prefill",
    "no_decode",
]
"""Why a turn runs without a handle; a label of the look-up counter and part of the turn's line."""

_REASONING_MARKS = (
    "<think",
    "</think",
    "[THINK]",
    "[/THINK]",
    "<|channel|>",
    "<seed:think>",
    "<reasoning>",
)
"""Reasoning in the text of an answer, as engines without a reasoning parser give it. The models'
templates leave it out of the history."""

ENTRY_BYTES = 1_400
"""What an entry weighs besides its handle's JSON, in bytes (tracemalloc, CPython 3.11)."""


@dataclass(frozen=True, slots=True)
class Holder:
    """One life of a decode engine. A restart makes another one of the same endpoint."""

    endpoint: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class Entry:
    """The newest finished turn of a conversation."""

    key: bytes
    scope: bytes
    mark: Mark | None
    handle: Handle | None
    """None when the turn left none that may be used; `reason` says why."""
    holder: Holder
    model: str
    deadline: float
    owner: bytes = b""
    """Digest of the caller's credentials."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The caller's credentials at the engines, for the release request."""
    reason: MissReason = "first_turn"

    def without_handle(self, reason: MissReason) -> "Entry":
        """What is left to remember once the handle is used or unusable."""
        return replace(self, handle=None, headers={}, reason=reason)

    @property
    def size_bytes(self) -> int:
        """Memory the entry stands for."""
        credentials = sum(map(len, self.headers.values()))
        return ENTRY_BYTES + credentials + (len(self.handle.raw) if self.handle else 0)


@dataclass(frozen=True, slots=True)
class Claim:
    """A handle taken out of the table for one P leg."""

    entry: Entry
    handle: Handle


@dataclass(frozen=True, slots=True)
class Miss:
    """No handle for this turn. `unusable` is an entry whose blocks D may free now."""

    reason: MissReason
    unusable: Entry | None = None


class Conversations:
    """Bounded by entries and by bytes; the least recently stored conversation goes first.

    `max_tokens` bounds what the handles keep in each decode engine; None for no such bound.
    """

    def __init__(
        self,
        *,
        max_entries: int,
        max_bytes: int,
        memory_s: float,
        max_tokens: int | None = None,
    ) -> None:
        self._memory_s = memory_s
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._entries: OrderedDict[bytes, Entry] = OrderedDict()
        self._by_history: dict[tuple[bytes, bytes], bytes] = {}
        self._size_bytes = 0
        self._handles = 0
        self._tokens = HeldTokens(max_tokens)

    @property
    def handles(self) -> int:
        """Handles that wait for their next turn."""
        return self._handles

    @property
    def size_bytes(self) -> int:
        """Sum of the entries' sizes."""
        return self._size_bytes

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(tuple(self._entries.values()))

    def holder(self, key: bytes) -> Holder | None:
        """The decode engine that has the conversation's blocks, also those it need not keep."""
        entry = self._entries.get(key)
        return entry.holder if entry else None

    def continued_by(self, owner: bytes, digests: Iterable[bytes]) -> bytes | None:
        """Key of a caller's conversation whose handle belongs to one of these histories.

        For clients that send no id: the first digest that is known decides.
        """
        for digest in digests:
            if key := self._by_history.get((owner, digest)):
                return key
        return None

    def claim(self, key: bytes, scope: bytes, history: History, now: float) -> Claim | Miss:
        """Take the conversation's handle if this turn continues it. Nobody else gets it then.

        An entry that does not fit is taken out as well: the turn's own handle replaces it, and
        nothing else could match it before.
        """
        entry = self._entries.get(key)
        if entry is None:
            return Miss("first_turn")
        if entry.handle is None or entry.mark is None:
            return Miss(entry.reason)
        self._put(entry.without_handle("claimed"))
        if now >= entry.deadline:
            return Miss("expired")
        if scope != entry.scope:
            return Miss("scope", entry)
        difference = history.difference(entry.mark)
        if difference:
            return Miss(difference, entry)
        return Claim(entry, entry.handle)

    def restore(self, claim: Claim) -> list[Entry]:
        """Put back a handle that certainly left the router nowhere, with its old deadline.

        Gives back entries with handles that lost their place; it is the claim's own when a newer
        turn of the conversation was stored meanwhile.
        """
        present = self._entries.get(claim.entry.key)
        if present is None or present.reason != "claimed":
            return [claim.entry]
        self._put(claim.entry)
        return self._within_bounds(claim.entry.holder)

    def store(self, entry: Entry) -> list[Entry]:
        """Remember a finished turn; gives back entries with handles that lost their place."""
        displaced = self._entries.get(entry.key)
        self._put(entry)
        self._entries.move_to_end(entry.key)
        gone = [displaced] if displaced and displaced.handle else []
        return gone + self._within_bounds(entry.holder)

    def forget_holder(self, endpoint: str, *, but: str | None = None) -> int:
        """Drop the handles of an engine that is gone, or of all its lives except `but`."""
        stale = [
            entry
            for entry in self._entries.values()
            if entry.handle
            and entry.holder.endpoint == endpoint
            and entry.holder.incarnation != but
        ]
        for entry in stale:
            self._put(entry.without_handle("other_engine"))
        return len(stale)

    def expire(self, now: float) -> int:
        """Drop the handles and entries whose time is over; how many handles went.

        What is left of an entry stays `memory_s` longer, to say why there is no handle.
        """
        before = self._handles
        for entry in self:
            if now >= entry.deadline:
                if entry.handle:
                    ended = entry.without_handle("expired")
                    self._put(replace(ended, deadline=entry.deadline + self._memory_s))
                else:
                    self._drop(entry.key)
        return before - self._handles

    def _within_bounds(self, holder: Holder) -> list[Entry]:
        gone = []
        while (key := self._tokens.excess(holder.endpoint)) is not None:
            oldest = self._entries[key]
            self._put(oldest.without_handle("displaced"))
            gone.append(oldest)
        while len(self._entries) > self._max_entries or self._size_bytes > self._max_bytes:
            oldest = self._drop(next(iter(self._entries)))
            if oldest.handle:
                gone.append(oldest)
        return gone

    def _put(self, entry: Entry) -> None:
        old = self._entries.get(entry.key)
        if old is not None:
            self._uncount(old)
        self._size_bytes += entry.size_bytes
        self._handles += entry.handle is not None
        if entry.handle:
            self._tokens.add(entry.holder.endpoint, entry.key, entry.handle.tokens)
        if entry.handle and entry.mark:
            self._by_history[entry.owner, entry.mark.digest] = entry.key
        self._entries[entry.key] = entry

    def _drop(self, key: bytes) -> Entry:
        entry = self._entries.pop(key)
        self._uncount(entry)
        return entry

    def _uncount(self, entry: Entry) -> None:
        self._size_bytes -= entry.size_bytes
        self._handles -= entry.handle is not None
        if entry.handle:
            self._tokens.remove(entry.holder.endpoint, entry.key)
        if entry.handle and entry.mark:
            place = (entry.owner, entry.mark.digest)
            # Two conversations with the same history: the place is the newer one's.
            if self._by_history.get(place) == entry.key:
                del self._by_history[place]


def unverifiable(api: Api, answer: Answer) -> MissReason | None:
    """What in a turn the engine may turn into other tokens when it comes back as history.

    Chat templates drop reasoning, print parsed tool arguments anew, and trim text; any of them
    shifts the tokens under D's blocks although the messages are equal. A text prompt is tokenised
    as one with the answer, so tokens can straddle the place where they meet.
    """
    if api == "completions":
        return "text_prompt"
    if answer.reasoning or any(mark in answer.text for mark in _REASONING_MARKS):
        return "reasoning"
    if answer.tool_calls:
        return "tools"
    return "whitespace" if answer.text != answer.text.strip() else None
