"""Signatures of vLLM's methods as they are in an engine: a program for its interpreter.

    python -m disaggpair_bed.releases.live < names.json > signatures.json

Standard input is a list of `module:Class.method`, standard output an object with the signature of
each that there is. Runs in an environment without this repository's dependencies.
"""

import importlib
import json
import sys
from typing import Any

from disaggpair_bed.releases import signature


def find(name: str) -> Any:
    """A method by `module:Class.method`; None if there is none."""
    module, _, qualified = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError:
        return None
    for part in qualified.split("."):
        found = getattr(found, part, None)
    return getattr(found, "__func__", found)  # of a class method, whose first parameter counts


def main() -> None:
    """Answer; what vLLM prints goes to standard error."""
    names = json.load(sys.stdin)
    answers, sys.stdout = sys.stdout, sys.stderr
    found = {name: find(name) for name in names}
    json.dump(
        {name: str(signature.of_callable(one)) for name, one in found.items() if one is not None},
        answers,
    )


if __name__ == "__main__":
    main()
