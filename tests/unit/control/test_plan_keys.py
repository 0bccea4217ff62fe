"""Who is given which of the pair's keys, and who may reach the ports that they guard."""

from typing import Any

import pytest

from disaggpair_bed.builders import FACTS, owner, pair, planned
from disaggpair_operator import names
from disaggpair_operator.model import Plan
from disaggpair_operator.plan import desired

NIXL = {"engine": {"connector": "Nixl"}}
ONE_WAY = {"kvTransfer": {"bidirectional": False}}
LEASE = ("DISAGGPAIR_LEASE_KEY", "chat-keys", "lease-key")
CONVERSATION = ("DISAGGPAIR_CONVERSATION_KEY", "chat-keys", "conversation-key")
ROLES = ("prefill", "decode")


def plan(changes: dict[str, Any] | None = None) -> Plan:
    return desired(pair(changes), owner(), FACTS)


def environment(of: Plan, part: str) -> list[dict[str, Any]]:
    pod = planned(of, "Deployment", part)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    return [entry for entry in container["env"] if entry["name"].startswith("DISAGGPAIR_")]


def keys(of: Plan, part: str) -> list[tuple[str, str, str]]:
    refs = [(e["name"], e["valueFrom"]["secretKeyRef"]) for e in environment(of, part)]
    return [(name, ref["name"], ref["key"]) for name, ref in refs]


@pytest.mark.parametrize("changes", [{}, ONE_WAY])
def test_engines_get_the_lease_key_and_the_router_both_from_the_pairs_secret(
    changes: dict[str, Any],
) -> None:
    found = plan(changes)
    for role in ROLES:
        assert keys(found, role) == [LEASE]
    assert keys(found, "router") == [LEASE, CONVERSATION]
    (secret,) = found.secrets
    assert secret.obj["metadata"]["name"] == "chat-keys"
    assert secret.keys == ("lease-key", "conversation-key")


def test_no_key_is_a_plain_value() -> None:
    for part in (*ROLES, "router"):
        assert all("value" not in entry for entry in environment(plan(), part))


def test_vllms_own_connector_needs_no_key() -> None:
    found = plan(NIXL)
    assert found.secrets == ()
    assert not any(keys(found, part) for part in (*ROLES, "router"))


def test_the_keys_are_no_part_of_the_revision() -> None:
    other = desired(pair(), owner("other"), FACTS)
    assert keys(plan(), "decode") != keys(other, "decode")
    assert plan().revision == other.revision


@pytest.mark.parametrize(("changes", "ports"), [({}, [8000, 5700]), (NIXL, [8000])])
def test_the_router_reaches_the_api_and_the_leases_and_the_roles_reach_each_other(
    changes: dict[str, Any], ports: list[int]
) -> None:
    policy = planned(plan(changes), "NetworkPolicy", "engines")["spec"]
    roles, router = policy["ingress"]
    assert policy["policyTypes"] == ["Ingress"]
    assert roles == {"from": [{"podSelector": policy["podSelector"]}]}
    (expression,) = policy["podSelector"]["matchExpressions"]
    assert (expression["key"], expression["values"]) == (names.ROLE_LABEL, list(ROLES))
    assert [entry["port"] for entry in router["ports"]] == ports
    (peer,) = router["from"]
    assert peer["podSelector"]["matchLabels"] == {
        names.PAIR_LABEL: "chat",
        names.ROLE_LABEL: "router",
    }
