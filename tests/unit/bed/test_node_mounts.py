from collections.abc import Mapping, Sequence

from disaggpair_bed.node.mounts import Bind, Kind, Op, plan_mounts


class Tree:
    """A host's file system: directories as maps, files as None, links as strings."""

    def __init__(self, root: Mapping[str, object]) -> None:
        self._root = root

    def _at(self, path: str) -> object:
        node: object = self._root
        for part in filter(None, path.split("/")):
            if not isinstance(node, Mapping) or part not in node:
                return ...
            node = node[part]
        return node

    def kind(self, path: str) -> Kind | None:
        node = self._at(path)
        if node is ...:
            return None
        return "dir" if isinstance(node, Mapping) else "link" if isinstance(node, str) else "file"

    def target(self, path: str) -> str:
        return str(self._at(path))

    def entries(self, path: str) -> Sequence[str]:
        node = self._at(path)
        assert isinstance(node, Mapping)
        return list(node)


HOST = Tree(
    {
        "etc": {"passwd": None, "ssl": {"cert": None}, "mtab": "/proc/mounts"},
        "run": {"lock": {}},
        "var": {"run": "/run", "log": {}},
        "dev": {"null": None, "shm": {}},
        "proc": {},
    }
)


def made_on_the_host(ops: Sequence[Op]) -> list[str]:
    """Mount points that would have to be made outside a mirrored directory."""
    covered = [op.path for op in ops if op.op == "tmpfs"]
    return [
        op.path
        for op in ops
        if op.op in ("dir", "file")
        and HOST.kind(op.path) is None
        and not any(op.path.startswith(path.rstrip("/") + "/") for path in covered)
    ]


def test_without_volumes_the_root_is_the_hosts() -> None:
    assert plan_mounts([], HOST) == [Op("bind", "/", "/")]


def test_a_mount_point_that_exists_is_mounted_over() -> None:
    assert plan_mounts([Bind("/vol/shm", "/dev/shm", is_dir=True)], HOST) == [
        Op("bind", "/", "/"),
        Op("dir", "/dev/shm"),
        Op("bind", "/dev/shm", "/vol/shm"),
    ]


def test_the_nearest_existing_directory_of_a_missing_one_is_mirrored() -> None:
    ops = plan_mounts([Bind("/vol/x", "/etc/disaggpair/x", is_dir=False)], HOST)
    assert ops == [
        Op("bind", "/", "/"),
        Op("tmpfs", "/etc"),
        Op("link", "/etc/mtab", "/proc/mounts"),
        Op("file", "/etc/passwd"),
        Op("mirror", "/etc/passwd", "/etc/passwd"),
        Op("dir", "/etc/ssl"),
        Op("mirror", "/etc/ssl", "/etc/ssl"),
        Op("file", "/etc/disaggpair/x"),
        Op("bind", "/etc/disaggpair/x", "/vol/x"),
    ]


def test_links_on_the_way_are_followed() -> None:
    ops = plan_mounts([Bind("/vol/sa", "/var/run/secrets/sa", is_dir=True)], HOST)
    assert Op("tmpfs", "/run") in ops
    assert ops[-1] == Op("bind", "/run/secrets/sa", "/vol/sa")


def test_a_new_top_level_directory_mirrors_the_root() -> None:
    ops = plan_mounts([Bind("/vol/m", "/models", is_dir=True)], HOST)
    assert ops[0] == Op("tmpfs", "/")
    assert Op("mirror", "/dev", "/dev") in ops
    assert ops[-2:] == [Op("dir", "/models"), Op("bind", "/models", "/vol/m")]


def test_nothing_is_ever_made_on_the_host() -> None:
    targets = [
        "/etc/a/b",
        "/etc/ssl/new",
        "/models",
        "/var/run/s",
        "/dev/termination-log",
        "/var/x",
    ]
    ops = plan_mounts([Bind("/v", target, is_dir=True) for target in targets], HOST)
    assert made_on_the_host(ops) == []


def test_a_mirror_within_a_mirror_comes_after_it() -> None:
    binds = [Bind("/v", "/etc/ssl/new", is_dir=True), Bind("/v", "/etc/new", is_dir=True)]
    covered = [op.path for op in plan_mounts(binds, HOST) if op.op == "tmpfs"]
    assert covered == ["/etc", "/etc/ssl"]


def test_a_volume_inside_a_volume_is_mounted_second_and_made_in_the_first() -> None:
    binds = [
        Bind("/vol/inner", "/dev/shm/inner", is_dir=True),
        Bind("/vol/outer", "/dev/shm", is_dir=True),
    ]
    assert plan_mounts(binds, HOST) == [
        Op("bind", "/", "/"),
        Op("dir", "/dev/shm"),
        Op("bind", "/dev/shm", "/vol/outer"),
        Op("dir", "/dev/shm/inner"),
        Op("bind", "/dev/shm/inner", "/vol/inner"),
    ]


def test_mounts_become_read_only_after_all_mount_points_are_made() -> None:
    binds = [
        Bind("/vol/outer", "/dev/shm", is_dir=True, read_only=True),
        Bind("/vol/inner", "/dev/shm/inner", is_dir=True),
    ]
    assert plan_mounts(binds, HOST)[-1] == Op("readonly", "/dev/shm")


def test_dots_in_a_path_are_resolved() -> None:
    ops = plan_mounts([Bind("/v", "/etc/../dev/shm/", is_dir=True)], HOST)
    assert ops[-1] == Op("bind", "/dev/shm", "/v")
