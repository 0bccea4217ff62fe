"""`python -m disaggpair_router`, the same as `disaggpair router`."""

import argparse
import sys

from disaggpair_router.command import add_arguments, run


def main() -> int:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(prog="disaggpair router", description=__doc__)
    add_arguments(parser)
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
