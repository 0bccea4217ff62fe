"""`disaggpair-bed install engines`."""

import argparse

from disaggpair_bed.cpu import install, model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It has none: what it installs is in the tree."""
    parser.description = "Install real vLLM engines for the CPU, and the model that they serve."


def run(args: argparse.Namespace) -> int:
    """Install what is missing and print where it is; BedError goes to the caller."""
    engines = install.ensure(_say)
    folder = model.ensure(engines, _say)
    _say(f"engines: {engines.folder}\nmodel: {folder}")
    return 0


def _say(line: str) -> None:
    print(line, flush=True)
