"""`disaggpair-bed releases`: what a vLLM release has of what the connector relies on."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import disaggpair_connector
from disaggpair_bed.releases import snapshot, uses
from disaggpair_bed.releases.wheel import Wheel

CONNECTOR = Path(disaggpair_connector.__file__).parent


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Two actions, both of a wheel that is read and not installed."""
    parser.description = "Compare a vLLM wheel with what the connector relies on."
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, text in (
        ("check", "say what is not as declared; status 1 if anything"),
        ("snapshot", "print what the release has, for tests/contract/releases/VERSION.json"),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("--wheel", type=Path, required=True, help="vllm-*.whl")


def run(args: argparse.Namespace) -> int:
    """Print; 1 when the release is not as declared."""
    wheel = Wheel(args.wheel)
    taken = snapshot.take(wheel.version, wheel)
    if args.action == "snapshot":
        print(snapshot.dumps(taken), end="")
        return 0
    moved = differences(taken)
    for sentence in moved:
        print(sentence)
    print(f"vLLM {wheel.version}: {f'{len(moved)} points differ' if moved else 'as declared'}")
    return 1 if moved else 0


def differences(taken: snapshot.Snapshot, connector: Path = CONNECTOR) -> Sequence[str]:
    """Everything in which a release is not as the connector relies on it."""
    ours: dict[str, set[str]] = {}
    for subclass in uses.subclasses(connector):
        ours.setdefault(subclass.base, set()).update(subclass.defines)
    return [*snapshot.lacks(taken), *snapshot.hides(taken, ours)]
