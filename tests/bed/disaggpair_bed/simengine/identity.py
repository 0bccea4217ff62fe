"""What besides its tokens makes the KV of a request, and to whom that KV belongs."""

from typing import NamedTuple


class Adapter(NamedTuple):
    """A LoRA adapter, with vLLM's names for the connector's own modules."""

    lora_name: str
    lora_path: str


class Identity(NamedTuple):
    """Two requests may share KV when these are the same."""

    adapter: str = ""
    """Name and path; empty for the base model."""
    salt: str = ""
    tenant: str = ""
    """Known to tests only, as `sim_tenant` of a body; vLLM has no such thing."""


NOBODY = Identity()
"""The identity of a request without adapter, salt and tenant."""

DIFFERENCES = {"adapter": "wrong_adapter", "salt": "foreign_salt", "tenant": "foreign_tenant"}
"""The violation that a read is when one of the fields differs."""


def violation_of(reader: Identity, owner: Identity) -> str | None:
    """Why the KV of one request must not be used for another; None when it may be."""
    for name, mine, theirs in zip(Identity._fields, reader, owner, strict=True):
        if mine != theirs:
            return DIFFERENCES[name]
    return None
