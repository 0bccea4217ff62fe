"""Whose an object is, read off the object itself. Pure."""

from disaggpair_operator import names
from disaggpair_operator.cluster import Conflict
from disaggpair_operator.keys import Key
from disaggpair_operator.model import Object, Owner, Ref


class NotOurs(Exception):
    """An object of a planned name belongs to somebody else."""


def ref_of(obj: Object) -> Ref:
    """Where the object is."""
    metadata = obj["metadata"]
    return Ref(obj["apiVersion"], obj["kind"], metadata.get("namespace", ""), metadata["name"])


def owner_of(pair: Object) -> Owner:
    """Identity of a DisaggPair as the API server gave it."""
    metadata = pair["metadata"]
    return Owner(
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        generation=metadata.get("generation", 0),
        deleting="deletionTimestamp" in metadata,
    )


def is_controlled_by(obj: Object, uid: str) -> bool:
    """Whether the object's controller reference carries this UID."""
    return any(
        reference.get("controller") and reference["uid"] == uid
        for reference in obj["metadata"].get("ownerReferences", ())
    )


def owner_key(child: Object) -> Key | None:
    """Key of the DisaggPair that controls the object, or None when none does."""
    for reference in child["metadata"].get("ownerReferences", ()):
        group = reference["apiVersion"].partition("/")[0]
        if reference.get("controller") and (group, reference["kind"]) == (names.GROUP, names.KIND):
            return Key(child["metadata"]["namespace"], reference["name"])
    return None


def require_ours(obj: Object, owner: Owner) -> None:
    """Raise NotOurs for an object that the pair does not control.

    Raises Conflict instead for one that an earlier pair of this name left to the garbage
    collector: that is over soon.
    """
    if is_controlled_by(obj, owner.uid):
        return
    if owner_key(obj) == (owner.namespace, owner.name):
        raise Conflict(f"{ref_of(obj)} is of an earlier pair of this name and not yet collected")
    raise NotOurs
