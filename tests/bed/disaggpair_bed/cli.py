"""`disaggpair-bed`: the test bed's parts, each from its own module.

A part is imported when it is called, so that `engine`, started many times on a bed, does not
pay for the rest.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import NamedTuple

from disaggpair_bed.controlplane.errors import BedError


class Part(NamedTuple):
    """A subcommand: `module` has `add_arguments(parser)` and `run(args) -> int`."""

    module: str
    help: str


PARTS = {
    "up": Part("disaggpair_bed.controlplane.up", "start a cluster and leave it running"),
    "down": Part("disaggpair_bed.controlplane.down", "stop the cluster of a run folder"),
    "install": Part("disaggpair_bed.install", "build the control plane, install real engines"),
    "nodes": Part("disaggpair_bed.node.command", "run process nodes (a cluster starts them)"),
    "engine": Part("disaggpair_bed.simengine.command", "run a simulated engine"),
    "releases": Part(
        "disaggpair_bed.releases.command", "compare a vLLM wheel with what the connector relies on"
    ),
    "demo": Part("disaggpair_bed.demo.command", "show a pair at work"),
    "hostile": Part("disaggpair_bed.hostile.command", "do to a pair what accidents do"),
    "chaos": Part("disaggpair_bed.chaos.command", "kill and break what clients talk to"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one part and return the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="disaggpair-bed",
        description="A control plane, process nodes and engines on one machine.",
    )
    commands = parser.add_subparsers(dest="part", metavar="PART", required=True)
    for name, part in PARTS.items():
        command = commands.add_parser(name, help=part.help)
        if arguments[:1] == [name]:
            module = importlib.import_module(part.module)
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    args = parser.parse_args(arguments)
    try:
        status: int = args.run(args)
    except BedError as error:
        print(f"disaggpair-bed {args.part}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return status


if __name__ == "__main__":
    sys.exit(main())
