"""The plugin that keeps idle engines from spinning, on stand-ins for what it changes."""

import importlib.util
import sys
from importlib.metadata import PathDistribution
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from disaggpair_bed.cpu import image

PLUGINS = Path(image.__file__).parent / "engine_plugins"


@pytest.fixture(scope="module")
def calm() -> ModuleType:
    spec = importlib.util.spec_from_file_location("calm", PLUGINS / "disaggpair_bed_calm.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class AgentConfig:
    """Like NIXL's: a class with a property that takes the delay."""

    def __init__(self) -> None:
        self._delay = 0

    @property
    def pthrDelay(self) -> int:  # noqa: N802 - as NIXL calls it
        return self._delay

    @pthrDelay.setter
    def pthrDelay(self, value: int) -> None:  # noqa: N802 - as NIXL calls it
        self._delay = value


def make_condition(busy: bool, events: list[str]) -> Any:
    """A class like vLLM's, and an object of it whose sockets have `events` ready."""

    class SpinCondition:
        def __init__(self) -> None:
            self.last_read = float("inf") if busy else float("-inf")
            self.busy_loop_s = 1
            self.calls: list[object] = []
            self.poller = SimpleNamespace(poll=self.poll)
            self.local_notify_socket = self

        def poll(self, timeout: int) -> list[tuple[object, int]]:
            self.calls.append(("poll", timeout))
            return [(self if event == "notify" else event, 1) for event in events]

        def recv(self, copy: bool) -> None:
            self.calls.append("recv")

        def wait(self, timeout_ms: int | None = None) -> None:
            self.calls.append(("original", timeout_ms))

    return SpinCondition


@pytest.mark.parametrize(("written", "kept"), [(0, 500), (499, 500), (2000, 2000)])
def test_the_progress_thread_pauses(calm: ModuleType, written: int, kept: int) -> None:
    bindings = SimpleNamespace(nixlAgentConfig=AgentConfig)
    calm.pause_progress_thread(bindings)
    config = bindings.nixlAgentConfig()
    config.pthrDelay = written
    assert config.pthrDelay == kept
    assert isinstance(config, AgentConfig)  # NIXL's C++ side asks for its own type


@pytest.mark.parametrize(("events", "after"), [(["notify"], ["recv"]), (["cancel"], []), ([], [])])
def test_a_reader_that_would_spin_polls_shortly(
    calm: ModuleType, events: list[str], after: list[str]
) -> None:
    condition = make_condition(busy=True, events=events)
    calm.wait_for_notification(condition)
    reader = condition()
    reader.wait(5000)
    assert reader.calls == [("poll", 1), *after]


def test_a_reader_that_would_sleep_does_so(calm: ModuleType) -> None:
    condition = make_condition(busy=False, events=[])
    calm.wait_for_notification(condition)
    reader = condition()
    reader.wait(5000)
    assert reader.calls == [("original", 5000)]


def test_applying_it_again_changes_nothing(calm: ModuleType) -> None:
    bindings = SimpleNamespace(nixlAgentConfig=AgentConfig)
    condition = make_condition(busy=True, events=[])
    for _ in range(2):
        calm.pause_progress_thread(bindings)
        calm.wait_for_notification(condition)
    assert bindings.nixlAgentConfig.__bases__ == (AgentConfig,)
    reader = condition()
    reader.wait()
    assert reader.calls == [("poll", 1)]


def test_registering_it_reaches_both(calm: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    bindings = SimpleNamespace(nixlAgentConfig=AgentConfig)
    condition = make_condition(busy=True, events=[])
    monkeypatch.delenv("UCX_RCACHE_MAX_UNRELEASED", raising=False)
    modules = {
        "nixl": {"_api": SimpleNamespace(nixlBind=bindings)},
        "vllm": {},
        "vllm.distributed": {},
        "vllm.distributed.device_communicators": {
            "shm_broadcast": SimpleNamespace(SpinCondition=condition)
        },
    }
    for name, members in modules.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    calm.register()
    assert bindings.nixlAgentConfig is not AgentConfig
    assert condition.wait.calm


def test_vllm_finds_it_by_its_entry_point() -> None:
    (folder,) = PLUGINS.glob("*.dist-info")
    (entry,) = PathDistribution(folder).entry_points
    assert entry.group == "vllm.general_plugins"
    assert entry.value == "disaggpair_bed_calm:register"


def test_the_image_puts_it_and_the_connector_before_an_engine() -> None:
    connector, plugins = map(Path, image.engine_environment()["PYTHONPATH"].split(":"))
    assert (connector / "disaggpair_connector" / "connector.py").is_file()
    assert plugins == PLUGINS
