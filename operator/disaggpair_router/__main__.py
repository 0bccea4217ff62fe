"""`python -m disaggpair_router`, the same as `disaggpair router`."""

import sys

from disaggpair_router.command import add_arguments, run
from disaggpair_router.flags import FlagParser


def main() -> int:
    """Parse the command line and serve."""
    parser = FlagParser(prog="disaggpair router", description=__doc__)
    add_arguments(parser)
    namespace, unknown = parser.parse_known_args()
    parser.refuse_unknown(unknown)
    return run(namespace)


if __name__ == "__main__":
    sys.exit(main())
