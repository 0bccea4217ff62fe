"""The keys that a router finds in its environment. They are never part of a file, flag or log."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from disaggpair_connector.contract import CONVERSATION_KEY_ENV, ENGINE_KEY_ENV, LEASE_KEY_ENV
from disaggpair_router.conversation import check_length, shared_secret
from disaggpair_router.errors import ConfigError


def _own_secret() -> bytes:
    return shared_secret("", "", secrets.token_bytes)


@dataclass(frozen=True, slots=True)
class Environment:
    """The keys. Without arguments: none, and a secret of this process."""

    engine_key: str = field(default="", repr=False)
    """Presented to the engines instead of a caller's key; empty when the router has none."""
    lease_key: str = field(default="", repr=False)
    """Bearer key of D's lease listener; empty when the router has none."""
    conversation_secret: bytes = field(default_factory=_own_secret, repr=False)
    """For `conversation.Keys`; the same in all routers of a pair whose keys are the same."""

    @classmethod
    def of(cls, variables: Mapping[str, str]) -> Self:
        """The keys among a process's variables; ConfigError when one cannot be used.

        An empty variable counts as none.
        """
        engine_key = variables.get(ENGINE_KEY_ENV, "")
        lease_key = variables.get(LEASE_KEY_ENV, "")
        for name, key in ((ENGINE_KEY_ENV, engine_key), (LEASE_KEY_ENV, lease_key)):
            if not (key.isascii() and key.isprintable()) or " " in key:
                raise ConfigError(f"{name} holds a character that a header cannot carry.")
        if lease_key:
            check_length(LEASE_KEY_ENV, lease_key)
        secret = shared_secret(
            variables.get(CONVERSATION_KEY_ENV, ""), lease_key, secrets.token_bytes
        )
        return cls(engine_key, lease_key, secret)
