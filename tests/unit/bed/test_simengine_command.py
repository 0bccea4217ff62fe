"""The command line of the simulated engine, and its process."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from disaggpair_bed.simengine.commandline import parse_command_line
from disaggpair_bed.simengine.options import EngineOptions
from disaggpair_bed.simengine.release import Release

PLAIN = {"kv_connector": "NixlConnector", "kv_role": "kv_producer"}
OURS = {
    "kv_connector": "DisaggPairConnector",
    "kv_connector_module_path": "disaggpair_connector.connector",
    "kv_role": "kv_consumer",
}


def parse(*flags: str, config: object = None, **environ: str) -> EngineOptions:
    """Options of an engine, with a transfer configuration if one is given."""
    given = [] if config is None else ["--kv-transfer-config", json.dumps(config)]
    return parse_command_line(["m", *flags, *given], environ)


def fault(capsys: pytest.CaptureFixture[str], *flags: str, **more: Any) -> str:
    """The last lines of a refusal."""
    with pytest.raises(SystemExit) as refusal:
        parse(*flags, **more)
    assert refusal.value.code == 2
    return capsys.readouterr().err


def test_the_flags_of_the_operator_are_understood() -> None:
    options = parse(
        *("--served-model-name", "a", "b", "--host", "127.11.0.4", "--port", "8000"),
        *("--block-size", "128", "--tensor-parallel-size=4", "--max-model-len", "8k"),
        *("--no-enable-prefix-caching", "--revision", "abc", "--shutdown-timeout", "30"),
        *("--dtype=bfloat16", "--enforce-eager", "--gpu-memory-utilization", "0.9"),
        config={
            **PLAIN,
            "kv_connector_extra_config": {
                "backends": ["UCX"],
                "bidirectional_kv_xfer": True,
                "kv_recompute_threshold": 32,
                "decoder_kv_blocks_ttl": 60,
                "kv_lease_duration": 15,
            },
            "kv_load_failure_policy": "recompute",
        },
        VLLM_NIXL_SIDE_CHANNEL_HOST="127.11.0.4",
        VLLM_NIXL_SIDE_CHANNEL_PORT="5601",
    )
    assert options.names == ("a", "b")
    assert (options.host, options.port) == ("127.11.0.4", 8000)
    assert (options.side_channel_host, options.side_channel_port) == ("127.11.0.4", 5601)
    assert options.tp_size == 4
    assert options.shutdown_timeout_s == 30
    assert options.core.block_size == 128
    assert options.core.max_model_len == 8000
    assert not options.core.prefix_caching
    transfer = options.core.transfer
    assert transfer is not None
    assert transfer.bidirectional
    assert transfer.recompute_on_failure
    assert (transfer.recompute_threshold, transfer.decode_ttl_s) == (32, 60)
    assert transfer.prefill_lease_s == 15


def test_underscores_and_dotted_keys_are_other_spellings() -> None:
    options = parse(
        *("--block_size", "32", "--kv-transfer-config.kv_connector", "NixlConnector"),
        *("--kv_transfer_config.kv_role=kv_both", "--kv-transfer-config.engine_id", "e"),
        *("--kv-transfer-config.kv_connector_extra_config.bidirectional_kv_xfer", "true"),
    )
    assert options.core.block_size == 32
    assert options.transfer is not None
    assert (options.transfer.role, options.transfer.engine_id) == ("kv_both", "e")
    assert options.transfer.settings.bidirectional


def test_the_flag_is_tested_by_truth_as_in_vllm() -> None:
    extra = {"bidirectional_kv_xfer": "false"}
    options = parse(config={**PLAIN, "kv_connector_extra_config": extra})
    assert options.transfer is not None
    assert options.transfer.settings.bidirectional


def test_an_unknown_extra_key_is_ignored_without_a_message(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parse(config={**PLAIN, "kv_connector_extra_config": {"bidirectional_kv_xfre": True}})
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("extra", "side_channel", "port"),
    [({}, "5600", 5700), ({}, "0", 0), ({"lease_port": 9000}, "5600", 9000)],
)
def test_our_connector_has_a_port_for_leases(
    extra: dict[str, Any], side_channel: str, port: int
) -> None:
    config = {**OURS, "kv_connector_extra_config": extra}
    options = parse(
        config=config, VLLM_NIXL_SIDE_CHANNEL_PORT=side_channel, DISAGGPAIR_LEASE_KEY="k"
    )
    assert (options.lease_port, options.lease_key) == (port, "k")
    assert parse(config=PLAIN).lease_port == 0


@pytest.mark.parametrize(
    ("changes", "release", "text"),
    [
        ({"kv_connector_extra_config": {"lease_prot": 1}}, "0.33.0", "did you mean 'lease_port'?"),
        ({"kv_connector_extra_config": {"lease_claim_s": 0}}, "0.33.0", "lease_claim_s is 0"),
        ({"kv_role": "kv_both"}, "0.33.0", "kv_role is 'kv_both'"),
        ({"kv_buffer_device": "cpu"}, "0.33.0", "kv_buffer_device is 'cpu' on cuda"),
        ({}, "0.30.0", "vLLM 0.30.0 is not supported by DisaggPairConnector"),
    ],
)
def test_our_connector_refuses_what_vllms_own_takes(
    capsys: pytest.CaptureFixture[str], changes: dict[str, Any], release: str, text: str
) -> None:
    assert text in fault(capsys, config={**OURS, **changes}, SIMENGINE_VERSION=release)
    assert parse(config={**PLAIN, **changes}, SIMENGINE_VERSION=release).transfer is not None


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({**PLAIN, "kv_rol": "kv_both"}, "kv_rol: Unexpected keyword argument"),
        ({**PLAIN, "kv_rank": 0}, "kv_rank: Unexpected keyword argument"),
        ({"kv_connector": "NixlConnector"}, "kv_role: must be set"),
        ({**PLAIN, "kv_role": "producer"}, "kv_role: 'producer' is not one of"),
        ({**PLAIN, "kv_load_failure_policy": "retry"}, "kv_load_failure_policy: 'retry'"),
        ({**PLAIN, "kv_connector": "LMCacheConnectorV1"}, "is not simulated"),
        ({**OURS, "kv_connector_module_path": "elsewhere"}, "kv_connector_module_path"),
        ({**PLAIN, "kv_connector_extra_config": []}, "must be an object"),
        (
            {**PLAIN, "kv_connector_extra_config": {"kv_recompute_threshold": "many"}},
            "kv_recompute_threshold: must be a number",
        ),
        (
            {**PLAIN, "kv_connector_extra_config": {"decoder_kv_blocks_ttl": "480"}},
            "decoder_kv_blocks_ttl: must be a number of seconds",
        ),
        (["NixlConnector"], "not a JSON object"),
    ],
)
def test_a_bad_configuration_stops_the_start_and_is_named(
    capsys: pytest.CaptureFixture[str], config: object, text: str
) -> None:
    message = fault(capsys, config=config)
    assert "argument --kv-transfer-config" in message
    assert text in message


def test_keys_removed_in_0_32_are_taken_before(capsys: pytest.CaptureFixture[str]) -> None:
    config = {**PLAIN, "kv_rank": 0, "kv_parallel_size": 1, "kv_buffer_size": 1e9, "kv_ip": "::1"}
    assert parse(config=config, SIMENGINE_VERSION="0.31.0").transfer is not None
    assert "kv_rank" in fault(capsys, config={**PLAIN, "kv_rank": 0}, SIMENGINE_VERSION="0.32.0")


def test_before_0_22_ttl_and_lease_come_from_elsewhere() -> None:
    config = {**PLAIN, "kv_connector_extra_config": {"decoder_kv_blocks_ttl": 5}}
    old = parse(config=config, SIMENGINE_VERSION="0.21.0").core.transfer
    new = parse(config=config, SIMENGINE_VERSION="0.22.1").core.transfer
    assert old is not None
    assert new is not None
    assert (old.decode_ttl_s, new.decode_ttl_s) == (480, 5)


@pytest.mark.parametrize(
    ("flags", "environ", "text"),
    [
        ((), {"SIMENGINE_VERSION": "0.20.2"}, "outside the simulated releases, 0.21 to 0.33"),
        ((), {"SIMENGINE_VERSION": "latest"}, "is not a vLLM release"),
        ((), {"VLLM_NIXL_SIDE_CHANNEL_PORT": "x"}, "VLLM_NIXL_SIDE_CHANNEL_PORT"),
        (("--kv-transfer-config", "{"), {}, "not a JSON object"),
        (("--sim-answer-tokens", "9-3"), {}, "'9-3' is not a range"),
        (("--port", "http"), {}, "argument --port"),
        (("--kv-transfer-config.kv_role",), {}, "expected one argument"),
    ],
)
def test_other_bad_input_is_named(
    capsys: pytest.CaptureFixture[str],
    flags: tuple[str, ...],
    environ: dict[str, str],
    text: str,
) -> None:
    assert text in fault(capsys, *flags, **environ)


def test_settings_of_the_simulation_come_from_the_environment_too() -> None:
    options = parse(SIM_TOKEN_S="0.02", SIM_CONTROL="true", SIM_ANSWER_TOKENS="5-9")
    assert options.costs.token_s == 0.02
    assert options.control
    assert (options.answers.shortest, options.answers.longest) == (5, 9)
    assert parse("--sim-token-s", "0.5", SIM_TOKEN_S="0.02").costs.token_s == 0.5


@pytest.mark.parametrize("text", ["0.33.0", "v0.33.0", "0.33", "0.33.0+cpu"])
def test_a_release_is_read_as_images_write_it(text: str) -> None:
    assert str(Release.parse(text)) == "0.33.0"


@asynccontextmanager
async def process(*flags: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A simulated engine as a process, and its URL."""
    engine = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "disaggpair_bed.cli", "engine", "serve", "toy"),
        *("--host", "127.0.0.1", "--port", "0", *flags),
        env={
            **os.environ,
            "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
            "VLLM_NIXL_SIDE_CHANNEL_PORT": "0",
        },
        stderr=asyncio.subprocess.PIPE,
    )
    assert engine.stderr is not None
    try:
        async with asyncio.timeout(60):
            line = (await engine.stderr.readline()).decode()
            yield engine, line.rpartition(" on ")[2].strip()
            await engine.communicate()
    finally:
        if engine.returncode is None:
            engine.kill()
            await engine.communicate()


async def test_sigterm_ends_the_process_at_once_although_a_request_runs() -> None:
    async with (
        process("--sim-token-s", "0.05") as (engine, url),
        aiohttp.ClientSession() as session,
    ):
        body = {"prompt": "hello", "max_tokens": 4000, "ignore_eos": True, "stream": True}
        async with session.post(url + "/v1/completions", json=body) as response:
            await response.content.readany()
            engine.send_signal(signal.SIGTERM)
            rest = await response.content.read()
            assert b'"error"' in rest
    assert engine.returncode == 0


async def test_sigterm_lets_a_request_end_within_the_shutdown_timeout() -> None:
    flags = ("--sim-token-s", "0.05", "--shutdown-timeout", "30")
    async with process(*flags) as (engine, url), aiohttp.ClientSession() as session:
        body = {"prompt": "hello", "max_tokens": 10, "ignore_eos": True, "stream": True}
        async with session.post(url + "/v1/completions", json=body) as response:
            await response.content.readany()
            engine.send_signal(signal.SIGTERM)
            rest = await response.content.read()
            assert b'"finish_reason":"length"' in rest
            assert b"[DONE]" in rest
    assert engine.returncode == 0


async def test_a_dead_core_ends_the_process_with_1() -> None:
    config = json.dumps({**PLAIN, "kv_connector_extra_config": {"bidirectional_kv_xfer": True}})
    flags = ("--kv-transfer-config", config)
    async with process(*flags) as (engine, url), aiohttp.ClientSession() as session:
        body = {"prompt": "hello", "kv_transfer_params": {"do_remote_prefill": True}}
        async with session.post(url + "/v1/completions", json=body) as response:
            assert response.status == 500
    assert engine.returncode == 1


async def test_a_start_that_is_interrupted_ends_cleanly() -> None:
    engine = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "disaggpair_bed.cli", "engine", "serve", "toy"),
        *("--host", "127.0.0.1", "--port", "0", "--sim-startup-s", "600"),
        stderr=asyncio.subprocess.PIPE,
    )
    assert engine.stderr is not None
    async with asyncio.timeout(60):
        assert b"loads" in await engine.stderr.readline()
        engine.send_signal(signal.SIGTERM)
        await engine.communicate()
    assert engine.returncode == 0
