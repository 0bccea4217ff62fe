from pathlib import Path

from disaggpair_bed.node.memory import memory_root


def test_the_directory_is_gone_afterwards(tmp_path: Path) -> None:
    with memory_root(tmp_path) as path:
        (path / "file").touch()
        assert path.parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / "disaggpair-bed-left"
    (left / "volume").mkdir(parents=True)
    with memory_root(tmp_path):
        assert not left.exists()


def test_the_directory_of_a_living_process_stays(tmp_path: Path) -> None:
    with memory_root(tmp_path) as first, memory_root(tmp_path) as second:
        assert first.is_dir()
        assert second.is_dir()
