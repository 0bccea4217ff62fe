"""`disaggpair plan`: print what a DisaggPair becomes, without a cluster.

The objects carry no owner reference, since the pair has no UID yet; all else is what the operator
applies. The golden files of the tests are this command's output.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import yaml

from disaggpair_operator import names
from disaggpair_operator.api.parse import Fault, parse
from disaggpair_operator.model import Bind, Facts, Owner
from disaggpair_operator.plan import UnsupportedEngine, desired

DEFAULT_IMAGE = "disaggpair/operator:dev"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `disaggpair plan`."""
    parser.add_argument(
        "-f", "--filename", required=True, help="file with a DisaggPair, or - for standard input"
    )
    parser.add_argument("--router-image", default=DEFAULT_IMAGE, help="image of the router")
    parser.add_argument("--bind-address", choices=get_args(Bind), default="AllInterfaces")


def run(args: argparse.Namespace) -> int:
    """Print the objects as a YAML stream; 1 with a sentence per fault when there are none."""
    facts = Facts(router_image=args.router_image, bind=args.bind_address)
    try:
        text = (
            sys.stdin.read()
            if args.filename == "-"
            else Path(args.filename).read_text(encoding="utf-8")
        )
        sys.stdout.write(preview(text, facts))
    except OSError as error:
        return _refuse(f"{args.filename}: {error.strerror}")
    except ValueError as error:
        return _refuse(*str(error).splitlines())
    return 0


def _refuse(*sentences: str) -> int:
    for sentence in sentences:
        sys.stderr.write(f"disaggpair plan: {sentence}\n")
    return 1


class _PlainDumper(yaml.SafeDumper):
    """Writes a value that occurs twice in full, since people read and apply the output."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def preview(text: str, facts: Facts) -> str:
    """The plan of every DisaggPair in a YAML stream, as a YAML stream.

    Raises:
        ValueError: not YAML, no DisaggPair in it, or a wrong one; one line for each fault.
    """
    try:
        documents = [document for document in yaml.safe_load_all(text) if document]
    except yaml.YAMLError as error:
        raise ValueError(f"not valid YAML: {error}".replace("\n", " ")) from error
    pairs = [raw for raw in documents if isinstance(raw, dict) and raw.get("kind") == names.KIND]
    if not pairs:
        raise ValueError(f"no object of kind {names.KIND} in the input")
    objects = [obj for raw in pairs for obj in _planned(raw, facts)]
    return yaml.dump_all(objects, Dumper=_PlainDumper, sort_keys=False, width=100)


def _planned(raw: dict[str, Any], facts: Facts) -> Iterator[dict[str, Any]]:
    parsed = parse(raw)
    metadata = raw.get("metadata") or {}
    name = str(metadata.get("name", ""))
    if isinstance(parsed, list):
        raise ValueError("\n".join(f"{name}: {_sentence(fault)}" for fault in parsed))
    owner = Owner(name=name, namespace=metadata.get("namespace", "default"), uid="", generation=0)
    try:
        plan = desired(parsed, owner, facts)
    except UnsupportedEngine as error:
        raise ValueError(f"{name}: {error}") from error
    yield from (dict(obj) for obj in plan.objects)


def _sentence(fault: Fault) -> str:
    return str(fault)
