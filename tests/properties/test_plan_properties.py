"""What holds for the plan of any pair."""

import json
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from disaggpair_bed.builders import FACTS, merged, planned, spec
from disaggpair_operator import names
from disaggpair_operator.api.v1alpha1 import DisaggPair
from disaggpair_operator.model import Object, Owner, Plan
from disaggpair_operator.plan import desired
from disaggpair_operator.plan.releases import NEWEST, RELEASES
from disaggpair_operator.plan.router_config import router_config, router_file
from disaggpair_router.config import RouterConfig

# RFC 1123 subdomain of up to 253 characters, which is what Kubernetes allows as a name.
pair_names = st.from_regex(
    r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?){0,6}", fullmatch=True
)
changes = st.fixed_dictionaries(
    {},
    optional={
        "suspend": st.booleans(),
        "fabric": st.sampled_from([{"type": "TCP"}, {"type": "EFA", "devices": 4}]),
        "prefill": st.fixed_dictionaries({"replicas": st.integers(1, 64)}),
        "decode": st.fixed_dictionaries({"tensorParallelSize": st.integers(1, 64)}),
        "kvTransfer": st.fixed_dictionaries({"blockSize": st.sampled_from([16, 64, 256])}),
        "model": st.sampled_from([{"cache": {"claim": "c"}}, {"servedName": "s"}]),
        "engine": st.sampled_from([{"connector": "Nixl"}, {"connector": "DisaggPair"}]),
        "router": st.fixed_dictionaries(
            {},
            optional={
                "auth": st.just({"apiKeysSecretRef": {"name": "api-keys"}}),
                "guard": st.fixed_dictionaries(
                    {}, optional={"samplingRatePerMillion": st.integers(1, 1_000_000)}
                ),
                "tracing": st.just({"endpoint": "http://collector:4318"}),
                "debug": st.booleans(),
                "maxImbalance": st.integers(0, 100),
                "timeouts": st.fixed_dictionaries({"prefillSeconds": st.integers(1, 86_400)}),
                "limits": st.fixed_dictionaries({"maxTurns": st.integers(1, 1_000_000)}),
            },
        ),
    },
)


def plan_of(name: str, change: dict[str, Any]) -> Plan:
    pair = DisaggPair.model_validate_json(json.dumps({"spec": merged(spec(), change)}))
    return desired(pair, Owner(name, "agents", "u-1", 1), FACTS)


def everything(plan: Plan) -> list[Object]:
    """What exists once the plan is carried out."""
    return [*(secret.obj for secret in plan.secrets), *plan.objects]


def shuffled(value: Any) -> Any:
    """The same mapping with its keys in the opposite order."""
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(list(value))}
    return value


@given(pair_names, changes)
def test_the_same_pair_gives_the_same_plan_whatever_the_order_of_its_keys(
    name: str, change: dict[str, Any]
) -> None:
    assert plan_of(name, change) == plan_of(name, shuffled(change))


@given(pair_names, changes)
def test_names_are_valid_unique_and_short_enough_for_their_pods(
    name: str, change: dict[str, Any]
) -> None:
    plan = plan_of(name, change)
    seen = [(obj["kind"], obj["metadata"]["name"]) for obj in everything(plan)]
    assert len(seen) == len(set(seen))
    for _, child in seen:
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", child), child
        assert len(child) + len("-0123456789-01234") <= names.MAX_NAME


@given(pair_names, pair_names)
def test_two_pairs_of_a_namespace_never_share_a_child(one: str, other: str) -> None:
    if one != other:
        children = [
            {(obj["kind"], obj["metadata"]["name"]) for obj in everything(plan_of(name, {}))}
            for name in (one, other)
        ]
        assert not children[0] & children[1]


@given(pair_names, changes)
def test_every_object_carries_owner_and_labels_and_selectors_are_part_of_the_pod_labels(
    name: str, change: dict[str, Any]
) -> None:
    for obj in everything(plan_of(name, change)):
        assert obj["metadata"]["ownerReferences"][0]["uid"] == "u-1"
        labels = obj["metadata"]["labels"]
        assert all(len(value) <= names.MAX_NAME for value in labels.values())
        if obj["kind"] == "Deployment":
            selector = obj["spec"]["selector"]["matchLabels"]
            assert set(selector) == {names.PAIR_LABEL, names.ROLE_LABEL}
            assert selector.items() <= obj["spec"]["template"]["metadata"]["labels"].items()


@given(pair_names, changes, changes)
def test_selectors_never_change(name: str, one: dict[str, Any], other: dict[str, Any]) -> None:
    def selectors(change: dict[str, Any]) -> dict[str, Any]:
        return {
            obj["metadata"]["name"]: obj["spec"]["selector"]
            for obj in plan_of(name, change).objects
            if obj["kind"] == "Deployment"
        }

    assert selectors(one) == selectors(other)


@given(changes, st.integers(1, 64), st.booleans())
def test_replicas_placement_and_suspension_do_not_change_the_revision(
    change: dict[str, Any], replicas: int, suspend: bool
) -> None:
    moved = merged(
        change,
        {
            "decode": {"replicas": replicas},
            "placement": {"zone": "us-east-2c"},
            "suspend": suspend,
        },
    )
    assert plan_of("chat", change).revision == plan_of("chat", moved).revision


@given(changes)
def test_p_and_d_are_bound_to_one_zone_and_kept_off_each_others_hosts(
    change: dict[str, Any],
) -> None:
    plan = plan_of("chat", change)
    for role, other in (("prefill", "decode"), ("decode", "prefill")):
        (pod,) = [
            obj["spec"]["template"]["spec"]
            for obj in plan.objects
            if obj["kind"] == "Deployment" and obj["metadata"]["name"] == f"chat-{role}"
        ]
        (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
            "nodeSelectorTerms"
        ]
        zone = {"key": names.ZONE_LABEL, "operator": "In", "values": ["us-east-2a"]}
        assert zone in term["matchExpressions"]
        (apart,) = pod["affinity"]["podAntiAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"
        ]
        assert apart["labelSelector"]["matchLabels"][names.ROLE_LABEL] == other
        assert apart["topologyKey"] == "kubernetes.io/hostname"


@given(pair_names, changes)
def test_a_key_of_a_secret_is_given_to_pods_by_reference_and_every_reference_is_filled(
    name: str, change: dict[str, Any]
) -> None:
    plan = plan_of(name, change)
    filled = {(s.obj["metadata"]["name"], key) for s in plan.secrets for key in s.keys}
    for obj in plan.objects:
        if obj["kind"] == "Deployment":
            (container,) = obj["spec"]["template"]["spec"]["containers"]
            for entry in container["env"]:
                if entry["name"].startswith("DISAGGPAIR_"):
                    ref = entry["valueFrom"]["secretKeyRef"]
                    assert (ref["name"], ref["key"]) in filled
    assert not any("data" in secret.obj or "stringData" in secret.obj for secret in plan.secrets)


@given(changes)
def test_a_router_reads_from_its_file_what_it_is_told(change: dict[str, Any]) -> None:
    pair = DisaggPair.model_validate_json(json.dumps({"spec": merged(spec(), change)}))
    owner, release = Owner("chat", "agents", "u-1", 1), RELEASES[NEWEST]
    written = RouterConfig.model_validate_json(router_file(owner, pair.spec, release))
    assert written == router_config(owner, pair.spec, release)


@given(changes, changes)
def test_settings_of_the_router_change_neither_the_revision_nor_an_engine(
    change: dict[str, Any], other: dict[str, Any]
) -> None:
    moved = {**change, "router": other.get("router", {})}
    one, two = plan_of("chat", change), plan_of("chat", moved)
    assert one.revision == two.revision
    for role in ("prefill", "decode"):
        assert planned(one, "Deployment", role) == planned(two, "Deployment", role)
