"""The reader of clients' requests under atheris; `make fuzz` runs it for a time.

Needs atheris, which is not among the project's dependencies.
"""

import importlib
import sys

atheris = importlib.import_module("atheris")

with atheris.instrument_imports(include=["disaggpair_router"]):
    from disaggpair_bed.requestcheck import check


def main() -> None:
    """Run until the flags of libFuzzer end it."""
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
