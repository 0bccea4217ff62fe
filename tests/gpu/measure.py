"""Time to first token with and without reading from D, for several setups of a pair.

    python measure.py --model MODEL --out FOLDER plain:16 packed:16 ours:256 ...

A setup is KIND:BLOCK_SIZE with the kinds `plain` (vLLM's connector), `ours`, and both with a block
of all layers in one run of memory, `packed` and `ours-packed`. Each is measured alone; the engines
of the next one import while it runs.
"""
# ruff: noqa: T201 - it prints its tables

import argparse
import dataclasses
import json
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pair import Machine, Pair, Setup
from turns import (
    NEW,
    Turn,
    conversation,
    without_reading,
)

_KINDS: Final = ("plain", "packed", "ours", "ours-packed")
_TIMED_TURNS: Final = (1, 3, 7, 11)
_WARM_TURNS: Final = 3
_SEED: Final = 7


def setup_of(text: str) -> Setup:
    kind, _, block = text.partition(":")
    if kind not in _KINDS:
        raise argparse.ArgumentTypeError(f"{text}: KIND:BLOCK_SIZE with {', '.join(_KINDS)}")
    return Setup(f"{kind}-{block}", int(block), is_ours="ours" in kind, is_packed="packed" in kind)


def measure(
    pair: Pair, turns: int, new: int, vocabulary: tuple[int, int]
) -> tuple[list[Turn], list[Turn]]:
    conversation(pair, 1, _WARM_TURNS, new=new, vocabulary=vocabulary)
    on, prompts = conversation(pair, _SEED, turns, new=new, vocabulary=vocabulary)
    timed = [prompts[number] for number in _TIMED_TURNS if number < turns]
    off = without_reading(pair, _SEED, timed, new=new, vocabulary=vocabulary)
    again = without_reading(pair, _SEED + 1, timed[-1:], new=new, vocabulary=vocabulary)
    return on, [*off[:-1], min(off[-1], again[0], key=lambda turn: turn.first_token_s)]


def report(name: str, on: Sequence[Turn], off: Sequence[Turn]) -> None:
    by_prompt = {turn.prompt: turn for turn in off}
    print(f"## {name}")
    print("prompt  P leg  D first  ON   OFF  OFF/ON  read tokens  MB  descriptors  post  transfer")
    for turn in on:
        other = by_prompt.get(turn.prompt)
        read = turn.read
        print(
            f"{turn.prompt:6} {turn.prefill_s * 1e3:6.0f} {turn.decode_s * 1e3:6.0f} "
            f"{turn.first_token_s * 1e3:6.0f} "
            + (f"{other.first_token_s * 1e3:6.0f} " if other else " " * 7)
            + (f"{other.first_token_s / turn.first_token_s:6.2f} " if other else " " * 7)
            + f"{turn.tokens_read:7} "
            + (
                f"{read['bytes'] / 1e6:7.0f} {read['descriptors']:8.0f} "
                f"{read['post_s'] * 1e3:8.1f} {read['transfer_s'] * 1e3:8.1f}"
                if read
                else ""
            )
        )
    sys.stdout.flush()


def run(setups: Sequence[Setup], machine: Machine, arguments: argparse.Namespace) -> int:
    failures = 0
    following = Pair(setups[0], machine)
    for number, setup in enumerate(setups):
        with following as pair:
            pair.open_gate()
            try:
                started = time.monotonic()
                print(f"{setup.name}: up after {pair.wait_until_healthy():.0f} s", flush=True)
                if number + 1 < len(setups):
                    following = Pair(setups[number + 1], machine, number + 1)
                on, off = measure(pair, arguments.turns, arguments.new, (10, arguments.vocabulary))
                report(setup.name, on, off)
                result = {
                    "on": [dataclasses.asdict(turn) for turn in on],
                    "off": [dataclasses.asdict(turn) for turn in off],
                }
                (machine.logs / f"{setup.name}.json").write_text(json.dumps(result))
                print(f"{setup.name}: {time.monotonic() - started:.0f} s in all", flush=True)
            except (RuntimeError, OSError) as error:
                failures += 1
                print(f"{setup.name}: FAILED {error!r}")
                if following is pair and number + 1 < len(setups):
                    following = Pair(setups[number + 1], machine, number + 1)
            print(*pair.log_lines("KV Transfer metrics", "KV cache of shape", last=1), sep="\n")
            print(*pair.log_lines("Error: ", last=3), sep="\n", flush=True)
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("setups", nargs="+", type=setup_of)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--gpus", type=int, choices=(1, 2), default=1)
    parser.add_argument("--kv-gib", type=int, default=22, help="for KV, each engine")
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--new", type=int, default=NEW)
    parser.add_argument("--vocabulary", type=int, default=150_000)
    parser.add_argument("--mlps", type=int, default=16, help="sets of MLP weights, 0 for all")
    parser.add_argument("--shuffle", type=int, default=1, help="seed of the block order, or 0")
    parser.add_argument("--serve", default="", help="more arguments of vllm serve, in one string")
    arguments = parser.parse_args()
    environment = {
        **({"PAIR_MLPS": str(arguments.mlps)} if arguments.mlps else {}),
        **({"PAIR_SHUFFLE": str(arguments.shuffle)} if arguments.shuffle else {}),
    }
    machine = Machine(
        arguments.model,
        arguments.out,
        device=arguments.device,
        gpus=arguments.gpus,
        kv_bytes=arguments.kv_gib * 1024**3,
        args=tuple(shlex.split(arguments.serve)),
        environment=environment,
    )
    arguments.out.mkdir(parents=True, exist_ok=True)
    return run(arguments.setups, machine, arguments)


if __name__ == "__main__":
    sys.exit(main())
