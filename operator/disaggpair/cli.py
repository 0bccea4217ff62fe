"""The `disaggpair` command: one entry for operator, router and the offline tools.

Each subcommand's module is imported when it is asked for, so that the router runs without kopf and
a preview without a web server.
"""

import importlib
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Final

from disaggpair_router.flags import FlagParser

_COMMANDS: Final = {
    "plan": ("disaggpair_operator.preview", "print the objects a DisaggPair becomes"),
    "crd": ("disaggpair_operator.api.command", "write or check the generated CRD and API page"),
    "operator": ("disaggpair_operator.command", "run the operator"),
    "router": ("disaggpair_router.command", "run the multi-turn router"),
}
_EXTRAS: Final = {"operator": "operator", "router": "router"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    parser = FlagParser(prog="disaggpair", description=__doc__.partition("\n")[0])
    chosen = next((word for word in args if not word.startswith("-")), "")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    asked = parser
    for name, (module_name, text) in _COMMANDS.items():
        subparser = subparsers.add_parser(name, help=text, description=text)
        if name == chosen:
            module = _load(module_name, name)
            module.add_arguments(subparser)
            subparser.set_defaults(run=module.run)
            asked = subparser
    namespace, unknown = parser.parse_known_args(args)
    asked.refuse_unknown(unknown)
    return int(namespace.run(namespace))


def _load(module_name: str, command: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.startswith("disaggpair"):
            raise
        extra = _EXTRAS.get(command, command)
        sys.exit(
            f"disaggpair {command} needs the package {missing.name}: install disaggpair[{extra}]"
        )
