"""Where client libraries are kept, without installing any."""

from pathlib import Path

import pytest

from disaggpair_bed.clients import environments
from disaggpair_bed.controlplane.errors import BuildError, PrerequisiteError


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that would install; they make a folder where uv would."""
    made: list[list[str]] = []

    def run(command: list[str], *_: object) -> None:
        made.append(command)
        if "venv" in command:
            Path(command[-1]).mkdir()

    monkeypatch.setattr(environments, "_run", run)
    monkeypatch.setattr(environments, "_program", lambda name: f"/bin/{name}")
    return made


def test_an_environment_is_installed_once(calls: list[list[str]], tmp_path: Path) -> None:
    own = {"XDG_CACHE_HOME": str(tmp_path)}
    said: list[str] = []
    first = environments.python("openai", said.append, own)
    again = environments.python("openai", said.append, own)
    assert first == again
    assert first.is_relative_to(tmp_path / "disaggpair" / "clients")
    assert len(calls) == 2
    assert environments.PYTHON["openai"][0] in calls[1]
    assert environments.python("anthropic", said.append, own) != first
    assert len(said) == 2


def test_what_did_not_end_is_begun_again(calls: list[list[str]], tmp_path: Path) -> None:
    own = {"XDG_CACHE_HOME": str(tmp_path)}
    folder = environments.node(print, own)
    (folder / "complete").unlink()
    assert environments.node(print, own) == folder
    assert len(calls) == 2


def test_the_compromised_release_of_litellm_is_not_taken() -> None:
    assert environments.PYTHON["litellm"] != ("litellm==1.107.0",)
    assert all("==" in one for name in ("litellm", "openai") for one in environments.PYTHON[name])


def test_source_without_the_benchmark_is_an_error(calls: list[list[str]], tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="benchmarks/multi_turn"):
        environments.benchmark(print, {"XDG_CACHE_HOME": str(tmp_path)})
    assert list((tmp_path / "disaggpair" / "clients").glob("tmp*")) == []


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(PrerequisiteError, match="npm"):
        environments.node(print)
