"""Settings of one simulated engine, from the command line of `vllm serve` and the environment."""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from disaggpair_bed.simengine.coresettings import CoreSettings
from disaggpair_bed.simengine.costs import MEASURED, Costs
from disaggpair_bed.simengine.identity import Adapter
from disaggpair_bed.simengine.options import DEFAULT_VERSION, EngineOptions
from disaggpair_bed.simengine.release import Release
from disaggpair_bed.simengine.spelling import from_environment, normalised, split_transfer
from disaggpair_bed.simengine.template import ChatTemplate
from disaggpair_bed.simengine.toymodel import ToyModel
from disaggpair_bed.simengine.transferconfig import ConfigError, TransferConfig
from disaggpair_connector import contract

VERSION_ENV = "SIMENGINE_VERSION"
DEFAULT_CACHE_TOKENS = 262_144

_COSTS: Final = (
    "request_s",
    "prefill_tokens_per_s",
    "prefill_history_s",
    "token_s",
    "transfer_token_s",
    "transfer_block_s",
    "transfer_bytes_per_s",
)
"""Fields of `Costs` that are flags of their own."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="vllm serve", allow_abbrev=False)
    add = parser.add_argument
    add("model", nargs="?", default="toy")
    add("--served-model-name", nargs="+", default=[])
    add("--revision", default="")
    add("--host")
    add("--port", type=int, default=8000)
    add("--api-key", nargs="+", default=[])
    add("--enable-lora", action="store_true")
    add("--lora-modules", nargs="+", type=_adapter, default=[])
    add("--block-size", type=int, default=16)
    add("--num-gpu-blocks-override", type=int)
    add("--tensor-parallel-size", "-tp", type=int, default=1)
    add("--data-parallel-size", "-dp", type=int, default=1)
    add("--max-model-len", type=_human_int, default=131_072)
    add("--max-num-seqs", type=_human_int, default=256)
    add("--max-num-batched-tokens", type=_human_int, default=8192)
    add("--enable-prefix-caching", action=argparse.BooleanOptionalAction, default=True)
    add("--enable-prompt-tokens-details", action="store_true")
    add("--reasoning-parser", default="")
    add("--shutdown-timeout", type=float, default=0.0)
    add("--kv-transfer-config")
    sim = parser.add_argument_group("simulation")
    add = sim.add_argument
    add("--sim-control", action="store_true")
    add("--sim-cache-tokens", type=int, default=DEFAULT_CACHE_TOKENS)
    add("--sim-startup-s", type=float, default=0.0)
    add("--sim-costs", choices=sorted(MEASURED), default="none")
    add("--sim-time-scale", "--time-scale", type=float, default=1.0)
    for name in _COSTS:
        add(f"--sim-{name.replace('_', '-')}", type=float)
    add("--sim-answer-tokens", type=_range, default=(12, 40), metavar="MIN-MAX")
    add("--sim-thinking-tokens", type=int, default=0)
    add("--sim-two-spellings", action="store_true")
    add("--sim-strip-reasoning", action="store_true")
    add("--sim-trim", action="store_true")
    add("--sim-date", default="")
    add("--sim-unstable-generation-prompt", action="store_true")
    add("--sim-crash-on-abort-during-read", action="store_true")
    return parser


def _costs(known: argparse.Namespace) -> Costs:
    """A set of costs, with those replaced that are given on their own."""
    given = {name: getattr(known, f"sim_{name}") for name in _COSTS}
    return replace(
        MEASURED[known.sim_costs],
        startup_s=known.sim_startup_s,
        scale=known.sim_time_scale,
        **{name: value for name, value in given.items() if value is not None},
    )


def _human_int(text: str) -> int:
    """`4096`, `128k` (thousands) or `128K` (times 1024), as vLLM reads them."""
    factors = {"k": 1000, "m": 1_000_000, "K": 1024, "M": 1024 * 1024}
    factor = factors.get(text[-1:], 1)
    return int(float(text[:-1]) * factor) if factor > 1 else int(text)


def _adapter(text: str) -> Adapter:
    """`NAME=PATH`, or the same as a JSON object."""
    if text.startswith("{"):
        given = json.loads(text)
        return Adapter(str(given["name"]), str(given["path"]))
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PATH")
    return Adapter(name, path)


def _range(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    shortest, longest = int(low), int(high or low)
    if not 0 < shortest <= longest:
        raise argparse.ArgumentTypeError(f"{text!r} is not a range such as 12-40")
    return shortest, longest


_API_KEY_ENV = "VLLM_API_KEY"
"""Counts where the command line gives no key."""


def parse_command_line(argv: Sequence[str], environ: Mapping[str, str]) -> EngineOptions:
    """Options from the arguments after `serve`; exits with code 2 as vLLM does on bad ones.

    Flags of vLLM that change nothing here are accepted. A setting of the simulation may also be
    given as an environment variable, `SIM_TOKEN_S` for `--sim-token-s`.
    """
    parser = _parser()
    arguments, transfer = split_transfer(normalised(argv), parser)
    known, _ignored = parser.parse_known_args([*from_environment(environ), *arguments])
    if not known.api_key and environ.get(_API_KEY_ENV):
        known.api_key = [environ[_API_KEY_ENV]]
    try:
        release = Release.parse(environ.get(VERSION_ENV, DEFAULT_VERSION))
    except ValueError as error:
        parser.error(f"{VERSION_ENV}: {error}")
    config = None
    if known.kv_transfer_config is not None:
        try:
            transfer = {**json.loads(known.kv_transfer_config), **transfer}
        except (ValueError, TypeError):
            parser.error("argument --kv-transfer-config: not a JSON object")
    if transfer:
        try:
            config = TransferConfig.parse(transfer, release)
        except ConfigError as error:
            parser.error(f"argument --kv-transfer-config: 1 validation error\n{error}")
    try:
        port = int(environ.get(contract.SIDE_CHANNEL_PORT_ENV, "5600"))
    except ValueError:
        parser.error(f"{contract.SIDE_CHANNEL_PORT_ENV} is not a port number")
    host = environ.get(contract.SIDE_CHANNEL_HOST_ENV, "localhost")
    options = _options(known, release, config, host, port)
    return replace(
        options,
        lease_key=environ.get(contract.LEASE_KEY_ENV, ""),
        development=environ.get("VLLM_SERVER_DEV_MODE") == "1",
    )


def _options(
    known: argparse.Namespace,
    release: Release,
    config: TransferConfig | None,
    side_channel_host: str,
    side_channel_port: int,
) -> EngineOptions:
    blocks = known.num_gpu_blocks_override or known.sim_cache_tokens // known.block_size
    shortest, longest = known.sim_answer_tokens
    return EngineOptions(
        model=known.model,
        served_names=tuple(known.served_model_name),
        revision=known.revision,
        release=release,
        host=known.host,
        port=known.port,
        side_channel_host=side_channel_host,
        side_channel_port=side_channel_port,
        tp_size=known.tensor_parallel_size,
        dp_size=known.data_parallel_size,
        transfer=config,
        core=CoreSettings(
            model=f"{known.model}@{known.revision}",
            num_blocks=max(blocks, 2),
            block_size=known.block_size,
            max_model_len=known.max_model_len,
            max_batched_tokens=known.max_num_batched_tokens,
            max_sequences=known.max_num_seqs,
            prefix_caching=known.enable_prefix_caching,
            transfer=config.settings if config else None,
            abort_during_read_crashes=known.sim_crash_on_abort_during_read,
        ),
        template=ChatTemplate(
            strip_reasoning=known.sim_strip_reasoning,
            trim=known.sim_trim,
            date=known.sim_date,
            unstable_generation_prompt=known.sim_unstable_generation_prompt,
        ),
        answers=ToyModel(
            shortest=shortest,
            longest=longest,
            thinking=known.sim_thinking_tokens,
            two_spellings=known.sim_two_spellings,
        ),
        reasoning=bool(known.reasoning_parser),
        prompt_tokens_details=known.enable_prompt_tokens_details,
        adapters=tuple(known.lora_modules),
        api_keys=tuple(known.api_key),
        shutdown_timeout_s=known.shutdown_timeout,
        costs=_costs(known),
        control=known.sim_control,
    )
