"""`disaggpair-bed down`: stop the cluster of a run folder."""

import argparse
import os
import select
import signal
from pathlib import Path

from disaggpair_bed.controlplane.rundir import live_supervisor
from disaggpair_bed.controlplane.up import DEFAULT_RUN_DIR

PATIENCE_S = 60.0
"""How long a supervisor may take; after it the kernel kills its children with it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `down`."""
    parser.add_argument(
        "--run-dir",
        type=Path,
        default=DEFAULT_RUN_DIR,
        help="folder that `up` was given (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Stop the cluster; success too if none was running."""
    stopped = stop_supervisor(args.run_dir, PATIENCE_S)
    print(f"bed: {'stopped' if stopped else 'none was running'} in {args.run_dir}")
    return 0


def stop_supervisor(run_dir: Path, patience_s: float) -> bool:
    """Stop the supervisor of a run folder and wait for its end; False if there was none.

    A process id may have passed to somebody else since it was written. The descriptor is taken
    first and the lock looked at again after it: if the supervisor still lives then, the
    descriptor is the supervisor's.
    """
    pid = live_supervisor(run_dir)
    if pid is None:
        return False
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if live_supervisor(run_dir) != pid:
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        if not _ends_within(descriptor, patience_s):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            _ends_within(descriptor, patience_s)
    finally:
        os.close(descriptor)
    return True


def _ends_within(descriptor: int, patience_s: float) -> bool:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(patience_s * 1000))
