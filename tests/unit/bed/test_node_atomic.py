import os
from pathlib import Path

from disaggpair_bed.node.atomic import write_atomically
from disaggpair_bed.node.payload import File


def test_files_and_folders_are_reachable_by_their_names(tmp_path: Path) -> None:
    assert write_atomically(tmp_path, {"a": File(b"1", 0o600), "sub/b": File(b"2", 0o644)})
    assert (tmp_path / "a").read_bytes() == b"1"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "sub" / "b").read_bytes() == b"2"


def test_an_update_swaps_one_link_and_removes_the_old_version(tmp_path: Path) -> None:
    write_atomically(tmp_path, {"a": File(b"1", 0o644), "old": File(b"x", 0o644)})
    before = os.readlink(tmp_path / "..data")
    write_atomically(tmp_path, {"a": File(b"2", 0o644), "new": File(b"y", 0o644)})
    assert os.readlink(tmp_path / "..data") != before
    assert not (tmp_path / before).exists()
    assert {path.name for path in tmp_path.iterdir() if not path.name.startswith("..")} == {
        "a",
        "new",
    }
    assert (tmp_path / "a").read_bytes() == b"2"


def test_the_same_content_is_not_written_again(tmp_path: Path) -> None:
    files = {"a": File(b"1", 0o644)}
    write_atomically(tmp_path, files)
    before = os.readlink(tmp_path / "..data")
    assert not write_atomically(tmp_path, files)
    assert os.readlink(tmp_path / "..data") == before


def test_an_open_file_keeps_the_old_content(tmp_path: Path) -> None:
    write_atomically(tmp_path, {"a": File(b"1", 0o644)})
    with (tmp_path / "a").open("rb") as file:
        write_atomically(tmp_path, {"a": File(b"2", 0o644)})
        assert file.read() == b"1"


def test_an_empty_volume_is_a_directory(tmp_path: Path) -> None:
    write_atomically(tmp_path / "v", {})
    assert (tmp_path / "v").is_dir()
