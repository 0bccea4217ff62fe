"""What is missing of the Secrets that a pair names, in sentences without a value."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from disaggpair_operator.model import SecretUse
from disaggpair_operator.status.conditions import Condition, fails, holds, unknown

SECRETS_FOUND: Final = "SecretsFound"

Keys = Mapping[str, frozenset[str] | None]
"""Keys that have a value, by the name of the Secret; None for one that is not there. A name is left
out where the operator may not look."""


def secrets_found(uses: Sequence[SecretUse], keys: Keys, namespace: str) -> Condition:
    """Whether each Secret and key that the spec names is there."""
    faults = [fault for use in uses if (fault := _fault(use, keys, namespace))]
    if faults:
        return fails(SECRETS_FOUND, faults[0][0], "; ".join(sentence for _, sentence in faults))
    unseen = sorted({use.name for use in uses} - set(keys))
    if unseen:
        text = f"the operator may not look at Secrets of {namespace}: {', '.join(unseen)}"
        return unknown(SECRETS_FOUND, "Forbidden", text)
    return holds(SECRETS_FOUND, "AllFound" if uses else "NoneNamed")


def lacks_secrets(status: Mapping[str, Any]) -> bool:
    """Whether a status says that something is missing."""
    return any(
        condition["type"] == SECRETS_FOUND and condition["status"] == "False"
        for condition in status["conditions"]
    )


def _fault(use: SecretUse, keys: Keys, namespace: str) -> tuple[str, str] | None:
    """Reason and sentence for what one field names and is not there, else None."""
    if use.name not in keys:
        return None
    there = keys[use.name]
    where = f"Secret {namespace}/{use.name}"
    if there is None:
        wanted = f" with the key {use.key}" if use.key else ""
        text = f"{use.field} names the {where}, which does not exist: create it{wanted}"
        return "SecretMissing", text
    if use.key and use.key not in there:
        text = f"{use.field} names the key {use.key} of the {where}, which has no value: add it"
        return "KeyMissing", text
    if not use.key and not there:
        return "KeyMissing", f"{use.field} names the {where}, which is empty: add an entry"
    return None
