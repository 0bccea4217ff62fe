"""The model's folder."""

import stat
import sys
from pathlib import Path

import pytest

from disaggpair_bed.controlplane.errors import BuildError
from disaggpair_bed.cpu import image, model
from disaggpair_bed.cpu.install import Engines

FAKE_PYTHON = """#!{python}
import sys
from pathlib import Path

if {fails}:
    sys.exit("no module named torch")
folder = Path(sys.argv[-2])
folder.mkdir()
(folder / "config.json").write_text(sys.argv[-1])
with open({calls!r}, "a") as calls:
    print(folder.parent.name, file=calls)
"""


def make_engines(folder: Path, fails: bool = False) -> Engines:
    """Engines whose interpreter writes a folder instead of running the script."""
    engines = Engines(folder / "engines")
    engines.programs.mkdir(parents=True, exist_ok=True)
    engines.python.write_text(
        FAKE_PYTHON.format(python=sys.executable, fails=fails, calls=str(folder / "calls"))
    )
    engines.python.chmod(engines.python.stat().st_mode | stat.S_IXUSR)
    return engines


def test_a_model_is_made_once(tmp_path: Path) -> None:
    engines = make_engines(tmp_path)
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    first = model.ensure(engines, lambda line: None, environment)
    assert model.ensure(engines, lambda line: None, environment) == first
    assert first.name == model.SERVED_NAME
    assert (first / "config.json").read_text() == str(model.MAX_TOKENS)
    assert len((tmp_path / "calls").read_text().splitlines()) == 1


def test_a_failure_leaves_nothing_that_looks_like_a_model(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    with pytest.raises(BuildError, match="no module named torch"):
        model.ensure(make_engines(tmp_path, fails=True), lambda line: None, environment)
    assert model.ensure(make_engines(tmp_path), lambda line: None, environment).is_dir()


def test_another_script_or_other_libraries_make_another_model() -> None:
    assert len({model.model_key(s, lock) for s in (b"1", b"2") for lock in (b"3", b"4")}) == 4


def test_a_pod_finds_the_model_where_the_image_says(tmp_path: Path) -> None:
    entry = image.image(Engines(tmp_path), tmp_path / "tiny")
    assert entry["files"] == {"/models/tiny": str(tmp_path / "tiny")}
    assert entry["path"] == [str(tmp_path / "bin")]
    assert entry["entrypoint"] == ["vllm", "serve"]
