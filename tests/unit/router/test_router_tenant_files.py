"""Keys of tenants in a directory, and what happens when it changes."""

import asyncio
import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path

import pytest

from disaggpair_bed.fakes.secretmount import SecretMount
from disaggpair_bed.routing import eventually
from disaggpair_router.errors import ConfigError
from disaggpair_router.tenantfiles import TenantFiles, read_digests


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def raw(key: str) -> bytes:
    return bytes.fromhex(digest(key))


class Taken:
    """Keeps what the reader says."""

    def __init__(self, directory: Path) -> None:
        self.sets: list[Mapping[bytes, str]] = []
        self.files = TenantFiles(directory, use=self.sets.append)


def test_a_file_is_a_tenant_and_a_line_one_of_its_keys(tmp_path: Path) -> None:
    (tmp_path / "team-a").write_text(f"# laptop\n{digest('1')}\n\n  {digest('2').upper()}  # ci\n")
    (tmp_path / "team-b").write_text(digest("3"))
    (tmp_path / "team-c").write_text("")
    (tmp_path / ".hidden").write_text("no digest")
    assert read_digests(tmp_path) == {raw("1"): "team-a", raw("2"): "team-a", raw("3"): "team-b"}


def test_a_key_may_stand_twice_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(f"{digest('1')}\r\n{digest('1')}\r\n")
    assert read_digests(tmp_path) == {raw("1"): "a"}


def test_a_mounted_secret_is_read_behind_its_link(tmp_path: Path) -> None:
    mount = SecretMount(tmp_path)
    mount.write({"a": digest("1"), "b": digest("2")})
    assert read_digests(tmp_path) == {raw("1"): "a", raw("2"): "b"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            f"{digest('1')}\nsk-secret\n",
            "line 2 is not the SHA-256 digest of a key in hexadecimal (64 characters).",
        ),
        (f"{digest('1')}  -", "line 1 is not the SHA-256 digest"),
        (digest("1")[:-1], "line 1 is not the SHA-256 digest"),
        (digest(""), "line 1 is the digest of an empty text, which is no key."),
        ("secret\udcff", "line 1 is not the SHA-256 digest"),
        ("#" * (2**20 + 1), "a has more than 1048576 bytes."),
    ],
    ids=["a-key", "sha256sum", "short", "empty", "bytes", "large"],
)
def test_a_bad_file_is_named_with_its_line_and_never_shown(
    tmp_path: Path, text: str, sentence: str
) -> None:
    (tmp_path / "a").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError) as bad:
        read_digests(tmp_path)
    assert str(bad.value).startswith(str(tmp_path / "a"))
    assert sentence in str(bad.value)
    assert "secret" not in str(bad.value).replace(str(tmp_path), "")


def test_two_tenants_cannot_have_one_key(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(digest("1"))
    (tmp_path / "b").write_text(f"{digest('2')}\n{digest('1')}")
    with pytest.raises(ConfigError, match=r"b, line 2: a has the same key"):
        read_digests(tmp_path)


def test_a_file_whose_name_is_no_tenants_is_refused(tmp_path: Path) -> None:
    (tmp_path / "team a\u00e4").write_text(digest("1"))
    with pytest.raises(ConfigError, match=r"team a\\xe4' is no name for a tenant\.$"):
        read_digests(tmp_path)


def test_a_directory_that_is_absent_or_holds_another_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none cannot be read: No such file or directory\.$"):
        read_digests(tmp_path / "none")
    with pytest.raises(ConfigError, match=r"none cannot be read: No such file or directory\.$"):
        TenantFiles(tmp_path / "none", use=lambda _: None).load()
    (tmp_path / "b").symlink_to("nowhere")
    with pytest.raises(ConfigError, match=r" cannot be read: No such file or directory\.$"):
        TenantFiles(tmp_path, use=lambda _: None).load()
    (tmp_path / "a").mkdir()
    with pytest.raises(ConfigError, match=r"a cannot be read: Is a directory\.$"):
        read_digests(tmp_path)


async def test_a_changed_secret_is_read_again_and_an_unchanged_one_is_not(tmp_path: Path) -> None:
    mount = SecretMount(tmp_path)
    mount.write({"a": digest("1")})
    taken = Taken(tmp_path)
    taken.files.load()
    await taken.files.look()
    assert taken.sets == [{raw("1"): "a"}]
    mount.write({"b": digest("2")})
    await taken.files.look()
    await taken.files.look()
    assert taken.sets == [{raw("1"): "a"}, {raw("2"): "b"}]


async def test_the_files_of_a_plain_directory_are_watched_each(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(digest("1"))
    taken = Taken(tmp_path)
    taken.files.load()
    (tmp_path / "a").write_text(f"{digest('1')}\n{digest('2')}")
    await taken.files.look()
    (tmp_path / "b").write_text(digest("3"))
    await taken.files.look()
    (tmp_path / "a").unlink()
    await taken.files.look()
    assert [len(found) for found in taken.sets] == [1, 2, 3, 1]


async def test_a_bad_change_keeps_the_last_good_keys_and_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mount = SecretMount(tmp_path)
    mount.write({"a": digest("1")})
    taken = Taken(tmp_path)
    taken.files.load()
    mount.write({"a": "sk-secret"})
    await taken.files.look()
    await taken.files.look()
    said = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert len(said) == 1
    assert said[0].startswith("the keys of the tenants stay as they were: ")
    assert "a, line 1 is not the SHA-256 digest" in said[0]
    assert "sk-secret" not in caplog.text
    assert len(taken.sets) == 1
    mount.write({"a": digest("2")})
    await taken.files.look()
    assert taken.sets[-1] == {raw("2"): "a"}
    mount.write({"a": "sk-secret"})
    await taken.files.look()
    assert len([one for one in caplog.records if one.levelno == logging.ERROR]) == 2


async def test_a_directory_that_vanishes_keeps_the_keys(tmp_path: Path) -> None:
    mount = SecretMount(tmp_path / "mount")
    mount.write({"a": digest("1")})
    taken = Taken(tmp_path / "mount")
    taken.files.load()
    (tmp_path / "mount").rename(tmp_path / "gone")
    await taken.files.look()
    assert len(taken.sets) == 1
    (tmp_path / "gone").rename(tmp_path / "mount")
    mount.write({"a": digest("1"), "b": digest("2")})
    await taken.files.look()
    assert len(taken.sets) == 2


async def test_the_directory_is_looked_at_again_and_again(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(digest("1"))
    taken = Taken(tmp_path)
    taken.files.load()
    task = asyncio.create_task(taken.files.run(0.001))
    (tmp_path / "b").write_text(digest("2"))
    await eventually(lambda: len(taken.sets[-1]) == 2)
    (tmp_path / "c").write_text(digest("3"))
    await eventually(lambda: len(taken.sets[-1]) == 3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
