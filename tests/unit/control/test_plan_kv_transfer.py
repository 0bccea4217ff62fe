"""One KV-transfer configuration for both roles, by release."""

import json

import pytest

from disaggpair_bed.builders import pair
from disaggpair_operator.plan.engine_args import engine_arguments
from disaggpair_operator.plan.kv_transfer import kv_transfer_config
from disaggpair_operator.plan.releases import RELEASES, choose_release

NIXL = {"engine": {"connector": "Nixl", "allowUntestedVersion": True}}


@pytest.mark.parametrize("minor", sorted(RELEASES))
def test_the_roles_differ_in_nothing_but_their_role(minor: tuple[int, int]) -> None:
    spec = pair(NIXL | {"kvTransfer": {"decodeTTLSeconds": 777}}).spec
    prefill = kv_transfer_config(spec, RELEASES[minor], "prefill")
    decode = kv_transfer_config(spec, RELEASES[minor], "decode")
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
        assert config["kv_load_failure_policy"] == "fail"


def test_our_connector_is_loaded_by_its_module_path() -> None:
    config = kv_transfer_config(pair().spec, RELEASES[0, 33], "prefill")
    assert config["kv_connector"] == "DisaggPairConnector"
    assert config["kv_connector_module_path"] == "disaggpair_connector.connector"


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
