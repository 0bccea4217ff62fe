"""The host's file system as `mounts` wants to see it."""

import os
import stat
from collections.abc import Sequence

from disaggpair_bed.node.mounts import Kind


class HostView:
    """Reads the real file system."""

    def kind(self, path: str) -> Kind | None:
        try:
            mode = os.lstat(path).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None
        if stat.S_ISLNK(mode):
            return "link"
        return "dir" if stat.S_ISDIR(mode) else "file"

    def target(self, path: str) -> str:
        return os.readlink(path)

    def entries(self, path: str) -> Sequence[str]:
        return os.listdir(path)
