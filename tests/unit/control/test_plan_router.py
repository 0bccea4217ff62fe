"""The router's pods: how many, how they are replaced, and how they end."""

from typing import Any

import pytest

from disaggpair_bed.builders import FACTS, owner, pair, planned, raw_pair
from disaggpair_bed.pair_cases import ACCEPTED, Case
from disaggpair_operator.api.parse import parse
from disaggpair_operator.api.v1alpha1 import DisaggPair
from disaggpair_operator.api.v1alpha1.auth import TAKEN_HEADERS
from disaggpair_operator.model import Object, Plan
from disaggpair_operator.plan import desired
from disaggpair_operator.plan.releases import RELEASES
from disaggpair_operator.plan.router_config import router_config
from disaggpair_router.config import RouterConfig, Tenants


def plan(changes: dict[str, Any] | None = None) -> Plan:
    return desired(pair(changes), owner(), FACTS)


def deployment(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = planned(plan(changes), "Deployment", "router")["spec"]
    return spec


def budgets(of: Plan) -> dict[str, Object]:
    return {
        obj["metadata"]["name"]: obj for obj in of.objects if obj["kind"] == "PodDisruptionBudget"
    }


@pytest.mark.parametrize(
    ("replicas", "suspend", "pods"), [(1, False, 1), (3, False, 3), (3, True, 0)]
)
def test_there_are_as_many_as_asked_for(replicas: int, suspend: bool, pods: int) -> None:
    found = deployment({"router": {"replicas": replicas}, "suspend": suspend})
    assert found["replicas"] == pods


def test_a_new_one_serves_before_an_old_one_goes() -> None:
    for replicas in (1, 3):
        strategy = deployment({"router": {"replicas": replicas}})["strategy"]
        assert strategy["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_several_are_drained_from_their_nodes_one_at_a_time() -> None:
    several = budgets(plan({"router": {"replicas": 2}}))["chat-router"]
    assert several["spec"]["maxUnavailable"] == 1
    router = planned(plan(), "Deployment", "router")
    assert several["spec"]["selector"] == router["spec"]["selector"]
    assert set(budgets(plan())) == {"chat-prefill", "chat-decode"}


@pytest.mark.parametrize(("drain", "told"), [(0, 1), (60, 60), (3600, 3600)])
def test_the_grace_period_covers_the_pause_before_the_drain_the_drain_and_the_end(
    drain: int, told: float
) -> None:
    changes = {"rollout": {"drainSeconds": drain}}
    pod = deployment(changes)["template"]["spec"]
    (container,) = pod["containers"]
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    config = planned(plan(changes), "ConfigMap", "router")["data"]["router.json"]
    assert f'"drain_s": {told}' in config
    # The router releases its handles for at most 3 s and cuts what is left within half a second.
    assert pod["terminationGracePeriodSeconds"] >= pause + told + 5


def told(changes: dict[str, Any] | None = None) -> Tenants:
    return router_config(owner(), pair(changes).spec, RELEASES[0, 33]).tenants


def test_without_auth_everybody_may_use_the_pair_and_nothing_more_is_mounted() -> None:
    assert told() == Tenants()
    pod = deployment()["template"]["spec"]
    assert [volume["name"] for volume in pod["volumes"]] == ["config"]


def test_the_digests_of_api_keys_are_mounted_read_only_where_the_router_looks() -> None:
    changes = {"router": {"auth": {"apiKeysSecretRef": {"name": "api-keys"}}}}
    pod = deployment(changes)["template"]["spec"]
    assert {"name": "tenants", "secret": {"secretName": "api-keys"}} in pod["volumes"]
    (container,) = pod["containers"]
    folder = told(changes).directory
    assert {"name": "tenants", "mountPath": folder, "readOnly": True} in container["volumeMounts"]
    assert told(changes) == Tenants(directory=folder)
    assert folder not in (
        m["mountPath"] for m in container["volumeMounts"] if m["name"] != "tenants"
    )


def test_a_gateways_header_and_networks_are_told_and_need_no_secret() -> None:
    auth = {"tenantHeader": "X-Tenant", "trustedProxies": ["10.1.2.3/16", "FD00::1/64"]}
    tenants = told({"router": {"auth": auth}})
    assert (tenants.directory, tenants.header) == ("", "X-Tenant")
    assert tenants.trusted_proxies == ("10.1.0.0/16", "fd00::/64")


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case.name)
def test_the_router_takes_every_configuration_that_the_api_allows(case: Case) -> None:
    accepted = parse(raw_pair(case.changes))
    assert isinstance(accepted, DisaggPair)
    config = router_config(owner(), accepted.spec, RELEASES[0, 33])
    assert RouterConfig.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize("header", TAKEN_HEADERS)
def test_a_header_that_the_api_refuses_is_taken_in_the_router(header: str) -> None:
    config = router_config(owner(), pair().spec, RELEASES[0, 33]).model_dump()
    config["tenants"] |= {"header": header, "trusted_proxies": ["10.0.0.0/8"]}
    with pytest.raises(ValueError, match="header"):
        RouterConfig.model_validate(config)
