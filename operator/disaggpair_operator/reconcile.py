"""One look at one pair: read, plan, apply, say how it stands. Called for every kind of event alike.

It keeps nothing between calls, so a restart at any point is harmless. It knows no kopf; when and
how often it is called is decided by `handlers` and `queue`.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from disaggpair_operator.api.parse import parse
from disaggpair_operator.api.v1alpha1 import DisaggPair
from disaggpair_operator.apply import apply
from disaggpair_operator.cluster import Cluster, Forbidden
from disaggpair_operator.errors import Incomplete
from disaggpair_operator.keys import Key
from disaggpair_operator.model import Applied, Facts, Failure, Object, Owner, Plan
from disaggpair_operator.observe import observe
from disaggpair_operator.ownership import owner_of
from disaggpair_operator.plan import UnsupportedEngine, desired
from disaggpair_operator.secret import random_key
from disaggpair_operator.status import lacks_secrets, next_status, unseen_status

WAITING_S: Final = 15.0
"""While a pod waits for a node, or the pair for a Secret: neither is watched."""
REFUSED_S: Final = 30.0
"""While an object is refused: neither somebody else's object nor an admission rule is watched."""

_log = logging.getLogger(__name__)


class Reconciler:
    """The reconcile of any pair of one cluster."""

    def __init__(
        self,
        cluster: Cluster,
        facts: Facts,
        now: Callable[[], str],
        new_key: Callable[[], str] = random_key,
    ) -> None:
        """`now` gives the time in RFC 3339, in UTC, to the second; `new_key` a secret value."""
        self._cluster = cluster
        self._facts = facts
        self._now = now
        self._new_key = new_key

    async def reconcile(self, key: Key) -> float | None:
        """Bring the cluster closer to what the pair asks for, and write its status.

        Returns the seconds until it should be looked at again without an event, or None. Raises
        ClusterError or Incomplete for what a later attempt may do: the caller backs off. A pair
        that is gone or on its way out is the garbage collector's: nothing is written for it.
        """
        raw = await self._cluster.get(key.ref)
        if raw is None:
            return None
        owner = owner_of(raw)
        if owner.deleting:
            return None
        previous: Mapping[str, Any] = raw.get("status", {})
        pair, plan, faults = self._plan(raw, owner)
        try:
            observed = await observe(self._cluster, owner, plan.uses if plan else ())
        except Forbidden as error:
            status = unseen_status(
                observed_generation=owner.generation,
                text=str(error),
                previous=previous,
                now=self._now(),
            )
            await self._publish(key, Applied(), previous, status)
            raise
        applied = await apply(self._cluster, plan, observed, self._new_key) if plan else Applied()
        status = next_status(
            pair=pair,
            faults=faults,
            plan=plan,
            observed=observed,
            applied=applied,
            previous=previous,
            now=self._now(),
        )
        await self._publish(key, applied, previous, status)
        waits = bool(observed.nodes) or lacks_secrets(status)
        return _again_s(applied.failures, waits=waits)

    async def _publish(
        self, key: Key, applied: Applied, previous: Mapping[str, Any], status: Mapping[str, Any]
    ) -> None:
        _report(key, applied, previous, status)
        if status != previous:
            await self._cluster.patch_status(key.ref, status)

    def _plan(
        self, raw: Object, owner: Owner
    ) -> tuple[DisaggPair | None, Plan | None, Sequence[str]]:
        """The parsed pair and its plan, or the faults that keep it from having one."""
        pair = parse(raw)
        if not isinstance(pair, DisaggPair):
            return None, None, [str(fault) for fault in pair]
        try:
            return pair, desired(pair, owner, self._facts), ()
        except UnsupportedEngine as error:
            return pair, None, (str(error),)


def _again_s(failures: Sequence[Failure], *, waits: bool) -> float | None:
    """Seconds until the next look; raises Incomplete when that is for the back-off to say."""
    reasons = {failure.reason for failure in failures}
    if reasons & {"Conflict", "Unavailable", "Forbidden"}:
        raise Incomplete("; ".join(failure.message for failure in failures))
    if reasons:
        return REFUSED_S
    return WAITING_S if waits else None


def _report(
    key: Key, applied: Applied, previous: Mapping[str, Any], status: Mapping[str, Any]
) -> None:
    """One log line for each thing that changed."""
    for ref in applied.changed:
        _log.info("applied", extra={"pair": str(key), "object": str(ref)})
    for ref in applied.pruned:
        _log.info("deleted", extra={"pair": str(key), "object": str(ref)})
    before = {c["type"]: c for c in previous.get("conditions", ())}
    for condition in status["conditions"]:
        was = before.get(condition["type"], {})
        if (was.get("status"), was.get("reason")) != (condition["status"], condition["reason"]):
            _log.info(
                "condition",
                extra={
                    "pair": str(key),
                    "condition": condition["type"],
                    "status": condition["status"],
                    "reason": condition["reason"],
                    "text": condition["message"],
                },
            )
