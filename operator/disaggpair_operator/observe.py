"""Read everything one reconcile needs: Cluster in, Observed out. Reads only.

Children are found by the pair's label and kept when their controller reference carries the
owner's UID: a label alone does not make an object ours, and an object of an earlier pair of the
same name is the garbage collector's. Nodes explain why a pod waits, so they are read only then. Of
the Secrets that the pair names only the keys are looked at.
"""

import asyncio
from collections.abc import Iterable, Sequence

from disaggpair_operator import kinds, names
from disaggpair_operator.cluster import Cluster, Forbidden
from disaggpair_operator.model import Object, Observed, Owner, Ref, SecretUse
from disaggpair_operator.ownership import is_controlled_by


def waits_for_node(pod: Object) -> bool:
    """Whether the scheduler has not placed the pod yet."""
    return (
        not pod.get("spec", {}).get("nodeName")
        and pod.get("status", {}).get("phase", "Pending") == "Pending"
        and "deletionTimestamp" not in pod["metadata"]
    )


async def observe(cluster: Cluster, owner: Owner, uses: Iterable[SecretUse] = ()) -> Observed:
    """What the API server holds for the owner now. Raises ClusterError when a read fails.

    Args:
        cluster: where to read.
        owner: the pair.
        uses: Secrets that the pair names.
    """
    selector = f"{names.PAIR_LABEL}={names.label_value(owner.name)}"

    async def read(kind: kinds.Kind) -> Sequence[Object]:
        return await cluster.list(kind.api_version, kind.kind, owner.namespace, selector)

    pods, *lists = await asyncio.gather(*map(read, (kinds.POD, *kinds.CHILDREN)))
    return Observed(
        owner=owner,
        children=tuple(
            child for objects in lists for child in objects if is_controlled_by(child, owner.uid)
        ),
        pods=tuple(pods),
        nodes=await _nodes(cluster, pods),
        secrets=await _secrets(cluster, owner.namespace, {use.name for use in uses}),
    )


async def _secrets(
    cluster: Cluster, namespace: str, names: Iterable[str]
) -> dict[str, frozenset[str] | None]:
    seen: dict[str, frozenset[str] | None] = {}
    for name in sorted(names):
        ref = Ref(kinds.SECRET.api_version, kinds.SECRET.kind, namespace, name)
        try:
            view = await cluster.look_at_secret(ref)
        except Forbidden:
            # Whoever gave the operator no right on Secrets has them checked by the kubelet alone.
            continue
        seen[name] = view.filled if view else None
    return seen


async def _nodes(cluster: Cluster, pods: Iterable[Object]) -> tuple[Object, ...]:
    if not any(map(waits_for_node, pods)):
        return ()
    try:
        return tuple(await cluster.list(kinds.NODE.api_version, kinds.NODE.kind))
    except Forbidden:
        # An operator bound to namespaces may have no right on nodes: the status then repeats the
        # scheduler's message only.
        return ()
