"""`python -m disaggpair`."""

import sys

from disaggpair.cli import main

sys.exit(main())
