"""Become another program that the kernel kills when its parent dies.

Called as a script: `python -I -S tether.py PARENT COMMAND...`. A script and not a function for
`preexec_fn`, which may deadlock in a parent that has threads. The signal comes when the thread
that started this process ends, so a long-living thread has to start it.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie this process to its parent and replace it by the command."""
    parent, *command = sys.argv[1:]
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        sys.exit(1)  # the parent died before the tie
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
