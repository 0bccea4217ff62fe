"""Where what is built or fetched once is kept, outside the tree, and by one builder at a time."""

import fcntl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from disaggpair_bed.controlplane.progress import Say


def cache_root(environment: Mapping[str, str]) -> Path:
    """The parent of all that is kept; a relative XDG_CACHE_HOME is void by its specification."""
    base = Path(environment.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():
        base = Path.home() / ".cache"
    return base / "disaggpair"


@contextmanager
def held(path: Path, say: Say, waiting: str) -> Iterator[None]:
    """Hold a lock file; `waiting` is said when somebody else holds it."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(waiting)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
