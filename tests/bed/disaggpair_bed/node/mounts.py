"""Which mounts give a container its volumes where the pod wants them. Pure; `sandbox` executes.

The container's root is the host's root, bound to a new place. A mount point that exists on the
host is simply mounted over. For one that does not exist, its nearest existing ancestor is
*mirrored*: covered by a tmpfs that holds a bind mount of each original entry, so that the missing
part can be made there and the host's directory stays as it is.
"""

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

_MAX_LINKS = 40

Kind = Literal["dir", "file", "link"]


class View(Protocol):
    """The host's file system, as far as mounts depend on it. Links are not followed."""

    def kind(self, path: str) -> Kind | None:
        """What lies at an absolute path; None for nothing."""
        ...

    def target(self, path: str) -> str:
        """Where a link points."""
        ...

    def entries(self, path: str) -> Sequence[str]:
        """Names in a directory."""
        ...


@dataclass(frozen=True)
class Bind:
    """Something on the host that a container sees at `target`, an absolute path."""

    source: str
    target: str
    is_dir: bool
    read_only: bool = False


@dataclass(frozen=True)
class Op:
    """One step; `path` is where the container sees it.

    - bind: mount `source`, a path on the host; the mount point exists
    - mirror: the same for an entry of a mirrored directory, where the entry may have vanished
    - tmpfs: cover the directory by an empty tmpfs
    - dir, file: make a mount point, with its parents
    - link: make a symbolic link to `source`
    - readonly: make the mount at `path` read-only
    """

    op: Literal["bind", "mirror", "tmpfs", "dir", "file", "link", "readonly"]
    path: str
    source: str = ""


def plan_mounts(binds: Sequence[Bind], view: View) -> list[Op]:
    """The steps, in order, that make `binds` visible below a new root."""
    placed: list[tuple[str, Bind]] = []
    mirrored: set[str] = set()
    for bind in binds:
        path, ancestor = _resolve(bind.target, view)
        placed.append((path, bind))
        if ancestor != path and not _is_below_another(path, binds, view):
            mirrored.add(ancestor)
    placed.sort(key=lambda item: (item[0].count("/") if item[0] != "/" else 0, item[0]))
    ops = [Op("tmpfs", "/")] if "/" in mirrored else [Op("bind", "/", "/")]
    for directory in sorted(mirrored, key=lambda path: (len(path.split("/")), path)):
        if directory != "/":
            ops.append(Op("tmpfs", directory))
        ops += _mirror(directory, view)
    for path, bind in placed:
        ops.append(Op("dir" if bind.is_dir else "file", path))
        ops.append(Op("bind", path, bind.source))
    ops += [Op("readonly", path) for path, bind in placed if bind.read_only]
    return ops


def _is_below_another(path: str, binds: Sequence[Bind], view: View) -> bool:
    """True when the mount point lies in another volume: it is then made in that volume."""
    others = (_resolve(bind.target, view)[0] for bind in binds)
    return any(path != other and path.startswith(other.rstrip("/") + "/") for other in others)


def _mirror(directory: str, view: View) -> list[Op]:
    ops: list[Op] = []
    for name in sorted(view.entries(directory)):
        path = posixpath.join(directory, name)
        kind = view.kind(path)
        if kind == "link":
            ops.append(Op("link", path, view.target(path)))
        elif kind is not None:
            ops.append(Op(kind, path))
            ops.append(Op("mirror", path, path))
    return ops


def _resolve(path: str, view: View) -> tuple[str, str]:
    """The path without links, and its longest part that exists on the host."""
    todo = [part for part in posixpath.normpath(path).split("/") if part]
    done, exists, links = "/", "/", 0
    while todo:
        part = todo.pop(0)
        if part == "..":
            done = exists = posixpath.dirname(done)
            continue
        here = posixpath.join(done, part)
        kind = view.kind(here) if done == exists else None
        if kind == "link" and links < _MAX_LINKS:
            links += 1
            target = view.target(here)
            todo = [item for item in target.split("/") if item not in ("", ".")] + todo
            if target.startswith("/"):
                done = exists = "/"
            continue
        done = here
        if kind is not None:
            exists = here
    return done, exists
