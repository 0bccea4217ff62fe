import os
from pathlib import Path
from typing import Any

import pytest

from disaggpair_bed.node.errors import ConfigError, UnknownImage
from disaggpair_bed.node.images import ImageMap, parse_images


def test_an_unknown_image_is_refused_with_the_names_there_are(tmp_path: Path) -> None:
    path = tmp_path / "images.yaml"
    path.write_text("images: {a:1: {}, b:2: {}}")
    with pytest.raises(UnknownImage, match=r"image 'c:3' is not in .*; known images: a:1, b:2"):
        ImageMap(path).find("c:3")


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "images.yaml"
    path.write_text("images: {}")
    images = ImageMap(path)
    assert images.read() == {}
    path.write_text("images: {a: {entrypoint: [run]}}")
    os.utime(path, ns=(1, 1))
    assert images.find("a").entrypoint == ("run",)


def test_relative_directories_lie_beside_the_file() -> None:
    images = parse_images({"images": {"a": {"path": ["bin", "/opt/bin"]}}}, "i.yaml", Path("/bed"))
    assert images["a"].path == ("/bed/bin", "/opt/bin")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (None, "i.yaml must be a map with the one key `images`"),
        ({"images": {"a": {"paths": []}}}, "i.yaml: a is .*: it must be a map of path"),
        ({"images": {"a": {"path": "bin"}}}, "i.yaml: a.path is 'bin': it must be a list"),
        ({"images": {"a": {"env": {"A": None}}}}, "a.env is .*: it must be a map of strings"),
        ({"images": {"a": {"files": {"x": "/y"}}}}, "a.files is .*: it must be a map of absolute"),
    ],
)
def test_a_mistake_is_named(raw: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_images(raw, "i.yaml", Path("/bed"))
