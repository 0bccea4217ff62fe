"""`disaggpair-bed install`: do once what takes minutes, before a test or the demo needs it."""

import argparse

from disaggpair_bed.controlplane.progress import Say
from disaggpair_bed.cpu import command as engines
from disaggpair_bed.tools import find_tools


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add one subcommand for each thing to install."""
    targets = parser.add_subparsers(dest="target", metavar="TARGET", required=True)
    targets.add_parser("controlplane", help="compile the control plane with go")
    for name, text in (("engines", "install real vLLM for the CPU"), ("all", "both")):
        engines.add_arguments(targets.add_parser(name, help=text))


def run(args: argparse.Namespace) -> int:
    """Install what was asked for; what is there already is left alone."""
    if args.target in ("controlplane", "all"):
        install_control_plane(_say)
    if args.target in ("engines", "all"):
        return engines.run(args)
    return 0


def install_control_plane(say: Say) -> None:
    """Make sure that all programs are there, and say where.

    Raises:
        PrerequisiteError: the machine cannot have them; the sentence says what works instead.
        BuildError: go failed.
    """
    tools = find_tools(say)
    for name, path in tools.programs.items():
        say(f"{name}: {path}")


def _say(line: str) -> None:
    print(line, flush=True)
