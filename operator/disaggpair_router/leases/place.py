"""Where a lease belongs: the text that a router gives to D with a turn and finds in the lease.

Pure. Any router of the pair must be able to find a lease again, also one that started a minute ago.
So the text holds all that a look-up needs, as keyed digests: who does not have the key learns
nothing of an id or a message, and cannot make a text that another tenant's turn would find.
"""

import base64
import binascii
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

ID_BYTES: Final = 16
SCOPE_BYTES: Final = 8
HISTORY_BYTES: Final = 16
_COUNT_BYTES: Final = 4
_SIZE: Final = ID_BYTES + SCOPE_BYTES + HISTORY_BYTES + _COUNT_BYTES
_VERSION: Final = "1."


@dataclass(frozen=True, slots=True)
class Place:
    """A turn's place in its conversation."""

    id: bytes
    """Keyed digest of tenant and conversation id, 16 bytes."""
    scope: bytes
    """Keyed digest of what shapes the prompt besides the messages, 8 bytes."""
    history: bytes
    """Keyed digest of tenant, scope and the prompt's messages without the answer, 16 bytes."""
    length: int
    """Messages of the prompt; characters of a completion's."""

    def text(self) -> str:
        """What D keeps with the lease: 61 characters of ASCII."""
        raw = self.id + self.scope + self.history + self.length.to_bytes(_COUNT_BYTES, "big")
        return _VERSION + base64.urlsafe_b64encode(raw).decode("ascii")


def parse_place(text: str | None) -> Place | None:
    """The place in a lease's text; None for a lease that no router of this kind asked for."""
    if text is None or not text.startswith(_VERSION):
        return None
    try:
        raw = base64.b64decode(text[len(_VERSION) :].encode("ascii"), b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError):
        return None
    if len(raw) != _SIZE:
        return None
    scope_at, history_at = ID_BYTES, ID_BYTES + SCOPE_BYTES
    count_at = history_at + HISTORY_BYTES
    return Place(
        id=raw[:scope_at],
        scope=raw[scope_at:history_at],
        history=raw[history_at:count_at],
        length=int.from_bytes(raw[count_at:], "big"),
    )


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a turn looks for."""

    place: Place
    """Where its own lease will belong."""
    has_id: bool
    """Whether the client named its conversation; else the history has to tell."""
    earlier: Iterable[bytes]
    """`history` of the prompts that this one may continue, the longest first."""
    continues: Callable[[Place], bool]
    """Whether this prompt begins with that of another place of the same scope, and is longer."""
