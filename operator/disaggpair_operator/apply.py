"""Carry out a plan: Plan and Observed in, Applied out. Writes only.

Every object is written by server-side apply. That changes nothing where the object already is as
planned, and puts back what somebody else edited. One object's failure does not stop the others;
but nothing is pruned after one, since what the plan drops may be what still serves in the place of
the object that failed.

Secrets come first and in a way of their own (`secret`). After the failure of one nothing else is
written: pods that refer to it would not start, and would take the place of such as serve.
"""

from collections.abc import Callable, Mapping
from typing import Final, Literal

from disaggpair_operator.cluster import (
    Cluster,
    ClusterError,
    Conflict,
    Forbidden,
    Rejected,
    Unavailable,
)
from disaggpair_operator.model import Applied, Failure, Object, Observed, Owner, Plan, Ref
from disaggpair_operator.ownership import NotOurs, is_controlled_by, ref_of, require_ours
from disaggpair_operator.secret import fill_secret, random_key

Reason = Literal["NotOurs", "Invalid", "Forbidden", "Conflict", "Unavailable"]

_REASONS: Final[dict[type[ClusterError], Reason]] = {
    Rejected: "Invalid",
    Forbidden: "Forbidden",
    Conflict: "Conflict",
    Unavailable: "Unavailable",
}


_LOOKS: Final = 3
"""Attempts at one object that changes while it is written."""


async def apply(
    cluster: Cluster, plan: Plan, observed: Observed, new_key: Callable[[], str] = random_key
) -> Applied:
    """Make the cluster hold what the plan says. Never raises a ClusterError: they are collected.

    Nothing is written while the owner is being deleted: what is left is the garbage collector's,
    and an object created now could outlive it. `new_key` draws the values of Secrets.
    """
    if observed.owner.deleting:
        return Applied()
    made = await _fill_secrets(cluster, plan, observed.owner, new_key)
    if made.failures:
        return made
    present = {ref_of(child): child for child in observed.children}
    written = await _apply_all(cluster, plan, present, observed.owner)
    changed = (*made.changed, *written.changed)
    if written.failures:
        return Applied(changed=changed, failures=written.failures)
    pruned = await _prune(cluster, plan, present)
    return Applied(changed, pruned.pruned, pruned.failures)


async def _fill_secrets(
    cluster: Cluster, plan: Plan, owner: Owner, new_key: Callable[[], str]
) -> Applied:
    changed: list[Ref] = []
    failures: list[Failure] = []
    for wanted in plan.secrets:
        ref = ref_of(wanted.obj)
        try:
            if await fill_secret(cluster, wanted, owner, new_key):
                changed.append(ref)
        except (ClusterError, NotOurs) as error:
            failures.append(_failure(ref, error))
    return Applied(changed=tuple(changed), failures=tuple(failures))


async def _apply_all(
    cluster: Cluster, plan: Plan, present: Mapping[Ref, Object], owner: Owner
) -> Applied:
    changed: list[Ref] = []
    failures: list[Failure] = []
    for obj in plan.objects:
        ref = ref_of(obj)
        try:
            if await _apply_one(cluster, obj, present.get(ref), owner):
                changed.append(ref)
        except (ClusterError, NotOurs) as error:
            failures.append(_failure(ref, error))
    return Applied(changed=tuple(changed), failures=tuple(failures))


async def _prune(cluster: Cluster, plan: Plan, present: Mapping[Ref, Object]) -> Applied:
    planned = {ref_of(obj) for obj in plan.objects}
    pruned: list[Ref] = []
    failures: list[Failure] = []
    for ref, child in present.items():
        if ref in planned or "deletionTimestamp" in child["metadata"]:
            continue
        try:
            await cluster.delete(ref, child["metadata"]["uid"])
            pruned.append(ref)
        except ClusterError as error:
            failures.append(_failure(ref, error))
    return Applied(pruned=tuple(pruned), failures=tuple(failures))


async def _apply_one(cluster: Cluster, obj: Object, child: Object | None, owner: Owner) -> bool:
    """Write one object and say whether that changed anything.

    `child` is None for an object that was not observed as ours. It may exist all the same: as
    somebody else's, as one that an earlier pair of this name left to the garbage collector, or as
    ours without the pair's label, which applying puts back.
    """
    if child is None:
        child = await cluster.get(ref_of(obj))
        if child is not None:
            require_ours(child, owner)
    if child is None:
        await cluster.apply(obj)
        return True
    return await _apply_over(cluster, obj, child, owner)


async def _apply_over(cluster: Cluster, obj: Object, child: Object, owner: Owner) -> bool:
    """Apply over exactly the child that was looked at, and say whether that changed anything.

    The version makes the API server answer 409 when the child changed meanwhile. A change of its
    status is no matter. One of its owner is: the garbage collector may have orphaned it, for a
    pair deleted with `--cascade=orphan`, and an apply would give it back to the pair that goes.
    """
    for _ in range(_LOOKS):
        seen = {key: child["metadata"][key] for key in ("uid", "resourceVersion")}
        try:
            result = await cluster.apply({**obj, "metadata": {**obj["metadata"], **seen}})
            return bool(result["metadata"]["resourceVersion"] != seen["resourceVersion"])
        except Conflict:
            latest = await cluster.get(ref_of(obj))
            if latest is None or not is_controlled_by(latest, owner.uid):
                raise
            child = latest
    raise Conflict(f"{ref_of(obj)} changes faster than it can be written")


def _failure(ref: Ref, error: ClusterError | NotOurs) -> Failure:
    if isinstance(error, NotOurs):
        return Failure(
            ref,
            "NotOurs",
            f"{ref} exists and is not controlled by this pair; "
            "it is left alone: delete or rename it, or give the pair another name",
        )
    return Failure(ref, _REASONS[type(error)], str(error))
