"""One KV-transfer configuration for both roles, by release."""

import json
from typing import Any

import pytest

from disaggpair_bed.builders import pair
from disaggpair_connector import settings
from disaggpair_operator.model import Facts, Owner
from disaggpair_operator.plan.engine_args import engine_arguments
from disaggpair_operator.plan.kv_transfer import RoleName, kv_transfer_config
from disaggpair_operator.plan.releases import RELEASES, choose_release
from disaggpair_operator.plan.role import role_deployment
from disaggpair_operator.plan.router_config import router_config

NIXL = {"engine": {"connector": "Nixl", "allowUntestedVersion": True}}
ONE_WAY = {"kvTransfer": {"bidirectional": False}}
OWNER = Owner(name="pair", namespace="default", uid="", generation=1)
ROLES: tuple[RoleName, ...] = ("prefill", "decode")


@pytest.mark.parametrize("minor", sorted(RELEASES))
def test_the_roles_differ_in_nothing_but_their_role(minor: tuple[int, int]) -> None:
    spec = pair(NIXL | {"kvTransfer": {"decodeTTLSeconds": 777}}).spec
    prefill = kv_transfer_config(spec, RELEASES[minor], "prefill")
    decode = kv_transfer_config(spec, RELEASES[minor], "decode")
    prefill.pop("kv_role"), decode.pop("kv_role")
    assert prefill == decode


def test_with_our_connector_p_recomputes_what_it_cannot_read_and_d_fails() -> None:
    prefill, decode = (kv_transfer_config(pair().spec, RELEASES[0, 33], role) for role in ROLES)
    assert prefill.pop("kv_load_failure_policy") == "recompute"
    assert decode.pop("kv_load_failure_policy") == "fail"
    prefill.pop("kv_role"), decode.pop("kv_role")
    assert prefill == decode


@pytest.mark.parametrize(
    ("minor", "roles"),
    [((0, 22), ("kv_both", "kv_both")), ((0, 23), ("kv_producer", "kv_consumer"))],
)
def test_the_roles_have_names_since_0_23(minor: tuple[int, int], roles: tuple[str, str]) -> None:
    spec = pair(NIXL).spec
    rendered = [
        kv_transfer_config(spec, RELEASES[minor], role)["kv_role"] for role in ("prefill", "decode")
    ]
    assert tuple(rendered) == roles


def test_ttl_and_lease_are_left_out_before_vllm_reads_them() -> None:
    spec = pair(NIXL).spec
    old = kv_transfer_config(spec, RELEASES[0, 21], "decode")["kv_connector_extra_config"]
    new = kv_transfer_config(spec, RELEASES[0, 22], "decode")["kv_connector_extra_config"]
    assert set(new) - set(old) == {"decoder_kv_blocks_ttl", "kv_lease_duration"}


@pytest.mark.parametrize(("fabric", "backend"), [("EFA", "LIBFABRIC"), ("TCP", "UCX")])
def test_the_fabric_alone_chooses_the_backend(fabric: str, backend: str) -> None:
    spec = pair({"fabric": {"type": fabric}}).spec
    for role in ("prefill", "decode"):
        config = kv_transfer_config(spec, RELEASES[0, 33], role)
        assert config["kv_connector_extra_config"]["backends"] == [backend]


@pytest.mark.parametrize("connector", ["DisaggPair", "Nixl"])
def test_nothing_of_the_articles_printed_configuration_is_rendered(connector: str) -> None:
    spec = pair({"engine": {"connector": connector}}).spec
    for role in ("prefill", "decode"):
        config = kv_transfer_config(spec, choose_release(spec).release, role)
        gone = {"kv_rank", "kv_parallel_size", "engine_id", "kv_ip", "kv_buffer_size"}
        assert not gone & config.keys()


@pytest.mark.parametrize("role", ROLES)
def test_a_failed_read_ends_the_request_with_vllms_own_connector(role: RoleName) -> None:
    config = kv_transfer_config(pair(NIXL).spec, RELEASES[0, 33], role)
    assert config["kv_load_failure_policy"] == "fail"


def test_our_connector_is_loaded_by_its_module_path() -> None:
    config = kv_transfer_config(pair().spec, RELEASES[0, 33], "prefill")
    assert config["kv_connector"] == "DisaggPairConnector"
    assert config["kv_connector_module_path"] == "disaggpair_connector.connector"


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("changes", [{}, ONE_WAY, {"fabric": {"type": "TCP"}}])
def test_our_connector_takes_what_is_rendered_for_it(
    role: RoleName, changes: dict[str, Any]
) -> None:
    config = kv_transfer_config(pair(changes).spec, RELEASES[0, 33], role)
    taken = settings.parse_settings(config["kv_connector_extra_config"])
    fault = settings.engine_fault(
        taken,
        kv_role=config["kv_role"],
        kv_buffer_device="cuda",
        device_type="cuda",
        prefill_context_parallel_size=1,
    )
    assert fault is None


@pytest.mark.parametrize(
    ("changes", "port"), [({}, 5700), (ONE_WAY, 5700), (NIXL, None), (NIXL | ONE_WAY, None)]
)
def test_each_role_has_a_lease_port_with_our_connector(
    changes: dict[str, Any], port: int | None
) -> None:
    spec = pair(changes).spec
    release, facts = RELEASES[0, 33], Facts(router_image="example/disaggpair")
    for role in ROLES:
        pod = role_deployment(OWNER, spec, release, "r", facts, role)["spec"]["template"]["spec"]
        ports = {entry["name"]: entry["containerPort"] for entry in pod["containers"][0]["ports"]}
        assert ports.get("leases") == port
        extra = kv_transfer_config(spec, release, role)["kv_connector_extra_config"]
        assert extra.get("lease_port") == port


@pytest.mark.parametrize(
    ("changes", "verified"), [({}, True), (ONE_WAY, False), (NIXL, False), (NIXL | ONE_WAY, False)]
)
def test_the_router_relies_on_ps_comparison_only_where_p_reads(
    changes: dict[str, Any], verified: bool
) -> None:
    assert router_config(OWNER, pair(changes).spec, RELEASES[0, 33]).kv.verified_reads == verified


@pytest.mark.parametrize(
    ("changes", "port"), [({}, 5700), (ONE_WAY, None), (NIXL, None), (NIXL | ONE_WAY, None)]
)
def test_the_router_follows_leases_where_d_gives_them_for_later_turns(
    changes: dict[str, Any], port: int | None
) -> None:
    leases = router_config(OWNER, pair(changes).spec, RELEASES[0, 33]).kv.leases
    assert (leases and leases.port) == port


def test_leases_may_last_a_day() -> None:
    changes = {"kvTransfer": {"decodeTTLSeconds": 86_400}, "router": {"handleTTLSeconds": 86_370}}
    kv = router_config(OWNER, pair(changes).spec, RELEASES[0, 33]).kv
    assert (kv.handle_ttl_s, kv.decode_ttl_s) == (86_370, 86_400)


def test_the_argument_is_one_json_value() -> None:
    spec = pair().spec
    args = engine_arguments(spec, RELEASES[0, 33], "decode", "AllInterfaces")
    text = args[args.index("--kv-transfer-config") + 1]
    assert json.loads(text) == kv_transfer_config(spec, RELEASES[0, 33], "decode")


@pytest.mark.parametrize(
    ("bind", "host"), [("PodIP", ["--host", "$(POD_IP)"]), ("AllInterfaces", [])]
)
def test_the_bind_address_follows_the_operators_setting(bind: str, host: list[str]) -> None:
    args = engine_arguments(pair().spec, RELEASES[0, 33], "prefill", bind)  # type: ignore[arg-type]  # a Bind
    found = args[args.index("--host") : args.index("--host") + 2] if "--host" in args else []
    assert found == host
