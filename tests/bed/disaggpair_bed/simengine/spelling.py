"""Other spellings of an engine's settings: underscores, dotted keys, environment variables."""

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any


def normalised(argv: Sequence[str]) -> list[str]:
    """Long flags with dashes, as vLLM's parser takes underscores for dashes."""
    normalised = []
    for argument in argv:
        if argument.startswith("--"):
            flag, equals, value = argument.partition("=")
            name, dot, key = flag.partition(".")
            normalised.append(name.replace("_", "-") + dot + key + equals + value)
        else:
            normalised.append(argument)
    return normalised


def split_transfer(
    argv: Sequence[str], parser: argparse.ArgumentParser
) -> tuple[list[str], dict[str, Any]]:
    """Take out `--kv-transfer-config.KEY VALUE`, the dotted spelling of single keys."""
    prefix = "--kv-transfer-config."
    rest: list[str] = []
    values: dict[str, Any] = {}
    arguments = iter(argv)
    for argument in arguments:
        if not argument.startswith(prefix):
            rest.append(argument)
            continue
        path, equals, text = argument.removeprefix(prefix).partition("=")
        text = text if equals else next(arguments, "")
        if not text:
            parser.error(f"argument {argument}: expected one argument")
        target = values
        *parents, last = path.split(".")
        for parent in parents:
            target = target.setdefault(parent, {})
        try:
            target[last] = json.loads(text)
        except ValueError:
            target[last] = text
    return rest, values


def from_environment(environ: Mapping[str, str]) -> list[str]:
    """Settings of the simulation that the environment gives, as arguments."""
    arguments = []
    for name, value in sorted(environ.items()):
        if name.startswith("SIM_"):
            flag = "--" + name.lower().replace("_", "-")
            arguments += [flag] if value in ("", "true") else [f"{flag}={value}"]
    return arguments
