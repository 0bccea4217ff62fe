"""`disaggpair plan`: print what a DisaggPair becomes, without a cluster.

The objects carry no owner reference, since the pair has no UID yet; all else is what the operator
applies. A Secret that it makes with random values is named in a comment. The golden files of the
tests are this command's output.
"""

import argparse
import sys
from pathlib import Path
from typing import Any, get_args

import yaml

from disaggpair_operator import names
from disaggpair_operator.api.documents import MAX_CHARACTERS, documents
from disaggpair_operator.api.parse import MAX_NAME, parse
from disaggpair_operator.api.text import printable, shown
from disaggpair_operator.model import Bind, Facts, KeySecret, Owner, Plan
from disaggpair_operator.ownership import ref_of
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
        sys.stdout.write(preview(_read(args.filename), facts))
    except OSError as error:
        return _refuse(f"{args.filename}: {error.strerror}")
    except UnicodeDecodeError:
        return _refuse(f"{args.filename} is not UTF-8 text")
    except ValueError as error:
        return _refuse(*str(error).split("\n"))
    return 0


def _read(filename: str) -> str:
    """No more of the file than shows that it is too large."""
    if filename == "-":
        return sys.stdin.read(MAX_CHARACTERS + 1)
    with Path(filename).open(encoding="utf-8") as file:
        return file.read(MAX_CHARACTERS + 1)


def _refuse(*sentences: str) -> int:
    for sentence in sentences:
        sys.stderr.write(f"disaggpair plan: {printable(sentence)}\n")
    return 1


class _PlainDumper(yaml.SafeDumper):
    """Writes a value that occurs twice in full, since people read and apply the output."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """A file's text, such as a router's configuration, as its lines."""
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_PlainDumper.add_representer(str, _text)


def preview(text: str, facts: Facts) -> str:
    """The plan of every DisaggPair in a YAML stream, as a YAML stream.

    Raises:
        ValueError: unreadable YAML, no DisaggPair in it, or a wrong one; one line for each fault.
    """
    pairs = [
        raw for raw in documents(text) if isinstance(raw, dict) and raw.get("kind") == names.KIND
    ]
    if not pairs:
        raise ValueError(f"no object of kind {names.KIND} in the input")
    plans = [_planned(raw, facts) for raw in pairs]
    objects = [dict(obj) for plan in plans for obj in plan.objects]
    comments = [_comment(secret) for plan in plans for secret in plan.secrets]
    return "".join(comments) + yaml.dump_all(
        objects, Dumper=_PlainDumper, sort_keys=False, width=100
    )


def _comment(secret: KeySecret) -> str:
    return (
        f"# {ref_of(secret.obj)}: the operator makes it once, with random values for "
        f"{' and '.join(secret.keys)}\n"
    )


def _planned(raw: dict[str, Any], facts: Facts) -> Plan:
    parsed = parse(raw)
    if isinstance(parsed, list):
        raise ValueError("\n".join(f"{_named(raw)}{fault}" for fault in parsed))
    name, namespace = raw["metadata"]["name"], raw["metadata"].get("namespace") or "default"
    owner = Owner(name=name, namespace=namespace, uid="", generation=0)
    try:
        return desired(parsed, owner, facts)
    except UnsupportedEngine as error:
        raise ValueError(f"{name}: {error}") from error


def _named(raw: dict[str, Any]) -> str:
    """How a sentence about an object begins: with its name, in quotes unless that is plain text."""
    metadata = raw.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if name is None:
        return ""
    plain = isinstance(name, str) and name.isprintable() and 0 < len(name) <= MAX_NAME
    return f"{name if plain else shown(name)}: "
