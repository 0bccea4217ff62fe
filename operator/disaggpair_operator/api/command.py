"""`disaggpair crd`: print the CRD, or write and check the files that are generated from the API."""

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from disaggpair_operator.api.crd import CRD_NAME, crd_yaml
from disaggpair_operator.api.reference import reference
from disaggpair_operator.names import GROUP, PLURAL

GENERATED: Final[Mapping[str, Callable[[], str]]] = {
    f"crds/{GROUP}_{PLURAL}.yaml": crd_yaml,
    f"charts/disaggpair/files/{GROUP}_{PLURAL}.yaml": crd_yaml,
    "docs/api.md": reference,
}
"""Generated files by their path in the repository."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `disaggpair crd`."""
    parser.description = (
        f"Print the CustomResourceDefinition {CRD_NAME}, for kubectl apply --server-side -f -."
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--check", action="store_true", help="compare the repository's generated files"
    )
    what.add_argument("--write", action="store_true", help="write the repository's generated files")
    parser.add_argument(
        "--root", type=Path, default=Path(), help="the repository's folder; default: this one"
    )


def run(args: argparse.Namespace) -> int:
    """Do what the options say; 1 if a generated file differs, 2 outside a repository."""
    if not (args.check or args.write):
        sys.stdout.write(crd_yaml())
        return 0
    if not (args.root / "crds").is_dir():
        sys.stderr.write(f"{args.root / 'crds'} is not a folder: name the repository with --root\n")
        return 2
    if args.write:
        for path in write(args.root):
            sys.stdout.write(f"wrote {path}\n")
        return 0
    stale = differences(args.root)
    for path in stale:
        sys.stderr.write(f"{path} differs from the models: run disaggpair crd --write\n")
    return 1 if stale else 0


def differences(root: Path) -> list[str]:
    """Paths of generated files below `root` that are missing or differ in any byte."""
    return [
        path
        for path, text in GENERATED.items()
        if not (root / path).is_file() or (root / path).read_bytes() != text().encode()
    ]


def write(root: Path) -> list[str]:
    """Write the generated files that differ below `root`; returns their paths."""
    stale = differences(root)
    for path in stale:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(GENERATED[path]().encode())
    return stale
