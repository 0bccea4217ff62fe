"""Which conversation a turn belongs to: the id that a client sends, and the keys made of it. Pure.

Keys are HMACs under one secret, so all replicas of a pair that share the secret find the same
conversation, and nobody without it can tell an id, a tenant or a history from a key, or make a
key that meets another one. A key is made of

    HMAC-SHA256(secret, label | part | part ...)

with every label and part preceded by its length, so that no two lists of parts read the same.
"""

import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from disaggpair_connector.contract import CONVERSATION_KEY_ENV
from disaggpair_router.errors import BadRequest, ConfigError

MAX_ID_BYTES: Final = 256
MIN_KEY_LENGTH: Final = 16
"""Characters of a key that somebody chose and a secret is made of; a shorter one could be guessed.
"""

_KEY_BYTES: Final = 16
_SCOPE_BYTES: Final = 8
_LENGTH_BYTES: Final = 8
_SECRET_BYTES: Final = 32
_FROM_CONVERSATION_KEY: Final = b"disaggpair conversations, from the conversation key"
_FROM_LEASE_KEY: Final = b"disaggpair conversations, from the lease key"


@dataclass(frozen=True, slots=True)
class Conversation:
    """Which conversation a turn belongs to."""

    id: str
    key: bytes
    """Keyed digest of the id and of its owner, so that one caller's id never finds another one's
    conversation."""
    owner: bytes
    """Keyed digest of the tenant, or of the caller's credentials where there are no tenants."""
    is_minted: bool
    """The client sent no id: its history has to tell which conversation it continues."""

    @property
    def label(self) -> str:
        """What logs show."""
        return label_of(self.key)


def label_of(key: bytes) -> str:
    """What is shown of a conversation's key."""
    return key.hex()[:12]


class Keys:
    """Makes the keys of conversations. Two objects with one secret make the same keys."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def id(self, owner: bytes, conversation_id: str) -> bytes:
        """16 bytes for an id of an owner's."""
        return self._digest(b"id", owner, _encoded(conversation_id))[:_KEY_BYTES]

    def scope(self, scope: bytes) -> bytes:
        """8 bytes for what shapes a prompt besides its messages (`history.scope_digest`)."""
        return self._digest(b"scope", scope)[:_SCOPE_BYTES]

    def history(self, owner: bytes, scope: bytes, digest: bytes) -> bytes:
        """16 bytes for a chain of messages (`history.Mark.digest`) of an owner in a scope."""
        return self._digest(b"history", owner, scope, digest)[:_KEY_BYTES]

    def tenant(self, name: str) -> bytes:
        """The owner that a tenant is."""
        return self._digest(b"owner", b"tenant", _encoded(name))[:_KEY_BYTES]

    def caller(self, *credentials: str) -> bytes:
        """The owner that a caller is where there are no tenants; never equal to a tenant."""
        return self._digest(b"owner", b"caller", *map(_encoded, credentials))[:_KEY_BYTES]

    def _digest(self, label: bytes, *parts: bytes) -> bytes:
        message = b"".join(
            len(part).to_bytes(_LENGTH_BYTES, "big") + part for part in (label, *parts)
        )
        return hmac.digest(self._secret, message, "sha256")


def check_length(name: str, key: str) -> None:
    """ConfigError, with the name of its variable, when a key is short."""
    if len(key) < MIN_KEY_LENGTH:
        raise ConfigError(
            f"{name} has {len(key)} characters: it must have at least {MIN_KEY_LENGTH}."
        )


def shared_secret(
    conversation_key: str, lease_key: str, random_bytes: Callable[[int], bytes]
) -> bytes:
    """The secret for `Keys`: of the conversation key, else of the lease key, else of this process.

    An empty key counts as none. Raises ConfigError when the conversation key is short.
    """
    if conversation_key:
        check_length(CONVERSATION_KEY_ENV, conversation_key)
        return hmac.digest(_encoded(conversation_key), _FROM_CONVERSATION_KEY, "sha256")
    if lease_key:
        return hmac.digest(_encoded(lease_key), _FROM_LEASE_KEY, "sha256")
    return random_bytes(_SECRET_BYTES)


def conversation_of(
    from_body: object,
    headers: Mapping[str, str],
    names: Sequence[str],
    *,
    owner: bytes,
    keys: Keys,
    mint: Callable[[], str],
) -> Conversation:
    """The conversation of a request of `owner`'s; BadRequest when its id is not one.

    The body's id comes first, then the headers `names` in their order; an empty one counts as
    none. Bytes of a header that are no UTF-8 are part of an id as they are.
    """
    if from_body is not None and not isinstance(from_body, str):
        raise BadRequest("conversation_id must be a string.")
    found = from_body or next((headers[name] for name in names if headers.get(name)), None)
    if found is None:
        minted = mint()
        return Conversation(minted, keys.id(owner, minted), owner, is_minted=True)
    if len(found) > MAX_ID_BYTES or len(_encoded(found)) > MAX_ID_BYTES:
        raise BadRequest(f"The conversation id must have at most {MAX_ID_BYTES} bytes.")
    if any(map(_is_control, found)):
        raise BadRequest("The conversation id must have no control characters.")
    return Conversation(found, keys.id(owner, found), owner, is_minted=False)


def _is_control(char: str) -> bool:
    return char < " " or "\x7f" <= char <= "\x9f"


def _encoded(text: str) -> bytes:
    # Servers decode header bytes that are no UTF-8 to lone surrogates; this restores them.
    return text.encode("utf-8", "surrogateescape")
