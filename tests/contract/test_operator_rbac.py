"""The chart's rights against the requests the operator makes: none too few, none too many."""

import itertools
from pathlib import Path

import yaml

from disaggpair_bed.builders import FACTS, engine_pod, merged, owner, pair, raw_pair
from disaggpair_bed.fakes.cluster import FakeCluster
from disaggpair_operator import kinds
from disaggpair_operator.keys import Key
from disaggpair_operator.kinds import Kind
from disaggpair_operator.ownership import ref_of
from disaggpair_operator.plan import desired
from disaggpair_operator.reconcile import Reconciler

HELPERS = Path(__file__).parents[2] / "charts" / "disaggpair" / "templates" / "_helpers.tpl"
Right = tuple[str, str, str]
"""Group, resource with subresource, verb."""

INDIRECT: set[Right] = {
    # Asked for by an admission plug-in where owner references block their owner's deletion.
    ("disaggpair.dev", "disaggpairs/finalizers", "update"),
    # Handed on to the router's Role: nobody may grant what he lacks.
    ("", "pods", "get"),
}


def rules(template: str) -> set[Right]:
    """The rights of one named template of the chart, which is plain YAML."""
    _, _, rest = HELPERS.read_text().partition(f'{{{{- define "{template}" -}}}}')
    body, end, _ = rest.partition("{{- end -}}")
    assert end, f"no template {template}"
    return {
        right
        for rule in yaml.safe_load(body)
        for right in itertools.product(rule["apiGroups"], rule["resources"], rule["verbs"])
    }


def right(kind: Kind, verb: str, subresource: str = "") -> Right:
    return kind.group, "/".join(filter(None, (kind.plural, subresource))), verb


async def requests_made() -> set[Right]:
    """Every request of a pair's life: made, repaired, pruned, with a pod that waits."""
    cluster = FakeCluster()
    reconciler = Reconciler(cluster, FACTS, lambda: "2026-11-30T05:00:00Z")
    key = Key("default", "chat")
    cluster.put(raw_pair())
    await reconciler.reconcile(key)
    for child in [ref for ref in cluster.refs() if ref != key.ref and ref.kind != "Secret"]:
        found = cluster.take(child)
        assert found is not None
        # One more of each kind, which the plan lacks: it is pruned.
        cluster.put(
            merged(found, {"metadata": {"name": "dropped", "uid": "", "resourceVersion": ""}})
        )
    plan = desired(pair(), owner(), FACTS)
    (secret,) = plan.secrets
    emptied = cluster.take(ref_of(secret.obj))
    assert emptied is not None
    cluster.put({**emptied, "data": dict.fromkeys(secret.keys, "")})
    cluster.put(merged(engine_pod(plan, "prefill"), {"spec": {"nodeName": ""}}))
    await reconciler.reconcile(key)
    assert not [ref for ref in cluster.refs() if ref.name == "dropped"]
    return {right(_kind(call.kind), call.verb, call.subresource) for call in cluster.calls}


def _kind(name: str) -> Kind:
    return next(
        kind
        for kind in (kinds.PAIR, kinds.POD, kinds.NODE, kinds.SECRET, *kinds.CHILDREN)
        if kind.kind == name
    )


def watched() -> set[Right]:
    """What the informer asks for."""
    served = (kinds.PAIR, kinds.POD, *kinds.CHILDREN)
    return {right(kind, verb) for kind in served for verb in ("list", "watch")}


async def test_the_chart_grants_what_the_operator_asks_for_and_nothing_else() -> None:
    made = await requests_made()
    # A server-side apply of an object that is not there is a creation as well.
    creations = {right(kind, "create") for kind in kinds.CHILDREN}
    needed = made | watched() | creations | INDIRECT
    granted = rules("disaggpair.rules") | rules("disaggpair.nodeRules")
    assert granted == needed


def test_secrets_can_be_made_and_filled_by_name_and_neither_listed_nor_deleted() -> None:
    verbs = {verb for group, kind, verb in rules("disaggpair.rules") if kind == "secrets"}
    assert verbs == {"create", "get", "patch"}
