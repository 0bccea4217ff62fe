"""What `kv_connector_extra_config` may hold."""

from typing import Any

import pytest

from disaggpair_connector import contract
from disaggpair_connector.errors import ConfigError
from disaggpair_connector.settings import Settings, engine_fault, parse_settings


def test_an_empty_configuration_means_vllms_defaults() -> None:
    assert parse_settings({}) == Settings(
        backends=("UCX",),
        bidirectional=False,
        recompute_threshold_tokens=64,
        decode_ttl_s=480,
        prefill_lease_s=30,
        lease_port=None,
        lease_claim_s=30,
        lease_read_s=30,
    )


def test_every_value_that_the_operator_writes_is_taken() -> None:
    extra = {
        contract.EXTRA_BACKENDS: ["LIBFABRIC"],
        contract.EXTRA_BIDIRECTIONAL: True,
        contract.EXTRA_RECOMPUTE_THRESHOLD: 128,
        contract.EXTRA_DECODE_TTL: 900,
        contract.EXTRA_PREFILL_LEASE: 20,
        contract.EXTRA_LEASE_PORT: 5700,
        contract.EXTRA_LEASE_CLAIM: 12.5,
        contract.EXTRA_LEASE_READ: 60,
    }
    assert parse_settings(extra) == Settings(("LIBFABRIC",), True, 128, 900, 20, 5700, 12.5, 60)


@pytest.mark.parametrize(("extra", "port"), [({}, 5700), ({contract.EXTRA_LEASE_PORT: 9000}, 9000)])
def test_leases_are_served_beside_the_side_channel_unless_a_port_is_named(
    extra: dict[str, Any], port: int
) -> None:
    assert parse_settings(extra).lease_port_from(5600) == port


def test_every_other_key_that_vllm_reads_is_taken() -> None:
    extra = {"engine_ttl": 0, "enforce_handshake_compat": False, "num_threads": 8}
    assert parse_settings(extra) == parse_settings({})


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("bidirectional_kv_xfr", contract.EXTRA_BIDIRECTIONAL),
        ("bidirectional", contract.EXTRA_BIDIRECTIONAL),
        ("decoder_kv_block_ttl", contract.EXTRA_DECODE_TTL),
        ("lease_duration", contract.EXTRA_PREFILL_LEASE),
        ("backend", contract.EXTRA_BACKENDS),
        ("lease_ports", contract.EXTRA_LEASE_PORT),
    ],
)
def test_a_misspelt_key_is_refused_with_the_nearest_known_one(key: str, near: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_settings({contract.EXTRA_BIDIRECTIONAL: True, key: 1})
    assert f"has {key!r}, which vLLM would ignore" in str(caught.value)
    assert f"did you mean {near!r}?" in str(caught.value)


@pytest.mark.parametrize("key", ["remote_pull_threshold", "enable_cross_layers_blocks", ""])
def test_a_key_that_no_accepted_release_reads_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=r"Known keys: backends, bidirectional_kv_xfer, .*\.$"):
        parse_settings({key: 1})


def test_a_setting_of_push_mode_is_refused_as_such() -> None:
    with pytest.raises(ConfigError, match="a setting of push mode"):
        parse_settings({"push_registration_timeout": 480})


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        (contract.EXTRA_BIDIRECTIONAL, "false", "true or false"),
        (contract.EXTRA_BIDIRECTIONAL, 1, "true or false"),
        (contract.EXTRA_RECOMPUTE_THRESHOLD, "64", "a whole number of tokens"),
        (contract.EXTRA_RECOMPUTE_THRESHOLD, 64.0, "a whole number of tokens"),
        (contract.EXTRA_RECOMPUTE_THRESHOLD, True, "a whole number of tokens"),
        (contract.EXTRA_DECODE_TTL, 0, "a number of seconds above 0"),
        (contract.EXTRA_DECODE_TTL, float("inf"), "a number of seconds above 0"),
        (contract.EXTRA_PREFILL_LEASE, None, "a number of seconds above 0"),
        (contract.EXTRA_BACKENDS, "UCX", "a list of NIXL backends"),
        (contract.EXTRA_BACKENDS, [], "a list of NIXL backends"),
        (contract.EXTRA_BACKENDS, [""], "a list of NIXL backends"),
        ("engine_ttl", "never", "a number of seconds, 0 or less for no limit"),
        ("enforce_handshake_compat", "true", "true or false"),
        ("num_threads", 1.5, "a whole number of threads"),
        (contract.EXTRA_LEASE_PORT, 0, "a port, 1 to 65535"),
        (contract.EXTRA_LEASE_PORT, 65_536, "a port, 1 to 65535"),
        (contract.EXTRA_LEASE_PORT, "5700", "a port, 1 to 65535"),
        (contract.EXTRA_LEASE_PORT, None, "a port, 1 to 65535"),
        (contract.EXTRA_LEASE_CLAIM, 0, "a number of seconds above 0"),
        (contract.EXTRA_LEASE_READ, "30", "a number of seconds above 0"),
    ],
)
def test_a_value_that_would_be_misread_is_refused_by_key_value_and_what_is_allowed(
    key: str, value: Any, allowed: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_settings({key: value})
    assert str(caught.value).startswith(
        f"kv_connector_extra_config.{key} is {value!r}: use {allowed}"
    )


@pytest.mark.parametrize("threshold", [0, -1])
def test_a_threshold_that_switches_the_flag_off_is_refused(threshold: int) -> None:
    extra = {contract.EXTRA_RECOMPUTE_THRESHOLD: threshold}
    with pytest.raises(ConfigError, match=f"is {threshold} while bidirectional_kv_xfer is true"):
        parse_settings({**extra, contract.EXTRA_BIDIRECTIONAL: True})
    assert parse_settings(extra).recompute_threshold_tokens == threshold


ENGINE: dict[str, Any] = {
    "kv_role": contract.PREFILL_ROLE,
    "kv_buffer_device": "cuda",
    "device_type": "cuda",
    "prefill_context_parallel_size": 1,
}


@pytest.mark.parametrize("role", [contract.PREFILL_ROLE, contract.DECODE_ROLE])
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_an_engine_of_either_role_is_accepted_on_its_own_device(role: str, device: str) -> None:
    settings = parse_settings({contract.EXTRA_BIDIRECTIONAL: True})
    engine = {**ENGINE, "kv_role": role, "kv_buffer_device": device, "device_type": device}
    assert engine_fault(settings, **engine) is None


def test_an_engine_that_is_on_both_sides_is_refused() -> None:
    fault = engine_fault(parse_settings({}), **{**ENGINE, "kv_role": "kv_both"})
    assert fault is not None
    assert "kv_role is 'kv_both'" in fault
    assert "use kv_producer or kv_consumer" in fault


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"prefill_context_parallel_size": 2}, "--prefill-context-parallel-size is 2 while"),
    ],
)
def test_what_works_in_one_direction_only_is_refused_when_bidirectional(
    changes: dict[str, Any], sentence: str
) -> None:
    engine = {**ENGINE, **changes}
    fault = engine_fault(parse_settings({contract.EXTRA_BIDIRECTIONAL: True}), **engine)
    assert fault is not None
    assert sentence in fault
    assert engine_fault(parse_settings({}), **engine) is None


@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_host_buffer_on_an_accelerator_is_refused(bidirectional: bool) -> None:
    settings = parse_settings({contract.EXTRA_BIDIRECTIONAL: bidirectional})
    fault = engine_fault(settings, **{**ENGINE, "kv_buffer_device": "cpu"})
    assert fault is not None
    assert fault.startswith("kv_buffer_device is 'cpu' on cuda")
    assert fault.endswith("use 'cuda'.")
