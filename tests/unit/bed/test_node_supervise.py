"""Supervision with scripted probes: every wait is on an event, periods are zero."""

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from disaggpair_bed.node.context import Grace, PodContext
from disaggpair_bed.node.process import Exit
from disaggpair_bed.node.spec import Container, Handler, Probe, parse_pod
from disaggpair_bed.node.supervise import Supervision

POD = parse_pod(
    {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 600},
    }
)


class ScriptedProcess:
    """Ends with 0 at SIGTERM, unless it is deaf, and with 137 at SIGKILL."""

    def __init__(self, deaf: bool = False) -> None:
        self._end: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self._deaf = deaf
        self.signals: list[int] = []

    async def wait(self) -> Exit:
        return await asyncio.shield(self._end)

    def finish(self, code: int) -> None:
        if not self._end.done():
            self._end.set_result(Exit(code))

    def signal(self, number: int) -> None:
        if self._end.done():
            return
        self.signals.append(number)
        if number == signal.SIGKILL:
            self.finish(137)
        elif number == signal.SIGTERM and not self._deaf:
            self.finish(0)

    async def exec(self, argv: Sequence[str]) -> tuple[int, str]:
        raise AssertionError


class ScriptedHandlers:
    """Answers a handler by the name in its exec field; the last answer of a script stays."""

    def __init__(self, scripts: dict[str, list[str | None]]) -> None:
        self.scripts = scripts
        self.ran: list[str] = []

    async def run(self, handler: Handler, *_: Any) -> str | None:
        assert handler.exec is not None
        (name,) = handler.exec
        self.ran.append(name)
        script = self.scripts[name]
        if script == ["hang"]:
            await asyncio.Event().wait()
        await asyncio.sleep(0)
        return script.pop(0) if len(script) > 1 else script[0]


class Owner:
    def __init__(self) -> None:
        self.health = (False, False)
        self.ready, self.unready = asyncio.Event(), asyncio.Event()
        self.events: list[str] = []

    def set_health(self, *, started: bool, ready: bool) -> None:
        self.health = (started, ready)
        (self.ready if ready else self.unready).set()

    def event(self, reason: str, message: str, warning: bool = False) -> None:
        self.events.append(reason)


def probe(name: str, **fields: Any) -> Probe:
    return Probe(Handler(exec=(name,)), period_s=0, **fields)


class Bench:
    def __init__(
        self, container: Container, deaf: bool = False, **scripts: list[str | None]
    ) -> None:
        self.process = ScriptedProcess(deaf)
        self.handlers = ScriptedHandlers(scripts)
        self.owner = Owner()
        self.stop = asyncio.Event()
        self.grace = Grace()
        node = SimpleNamespace(handlers=self.handlers, config=SimpleNamespace(hollow=False))
        place = SimpleNamespace(pod_ip="127.11.0.2")
        context = PodContext(
            cast(Any, node),
            POD,
            cast(Any, place),
            cast(Any, None),
            Path(),
            lambda: None,
            self.grace,
        )
        supervision = Supervision(context, container, self.process, self.owner)
        self.task = asyncio.create_task(supervision.run(self.stop))

    async def end(self) -> Exit:
        async with asyncio.timeout(30):
            return await self.task


async def test_a_container_without_probes_is_ready_while_it_runs() -> None:
    bench = Bench(Container("c", "i"))
    await bench.owner.ready.wait()
    bench.process.finish(3)
    assert (await bench.end()).code == 3
    assert bench.owner.health == (True, True)


async def test_the_startup_probe_holds_off_the_others() -> None:
    container = Container(
        "c", "i", startup=probe("s", failure_threshold=9), liveness=probe("l"), readiness=probe("r")
    )
    bench = Bench(container, s=["no", "no", None], l=[None], r=[None])
    await bench.owner.ready.wait()
    assert bench.handlers.ran[:3] == ["s", "s", "s"]
    assert "s" not in bench.handlers.ran[3:]
    bench.stop.set()
    await bench.end()


async def test_a_startup_probe_that_never_passes_ends_the_run() -> None:
    container = Container("c", "i", startup=probe("s", failure_threshold=3))
    bench = Bench(container, s=["no"])
    await bench.end()
    assert bench.handlers.ran == ["s", "s", "s"]
    assert bench.process.signals == [signal.SIGTERM]
    assert bench.owner.health == (False, False)


async def test_failed_liveness_ends_the_run_with_sigterm_first() -> None:
    container = Container("c", "i", liveness=probe("l", failure_threshold=2))
    bench = Bench(container, l=[None, "no", None, "no", "no"])
    await bench.end()
    assert bench.handlers.ran == ["l"] * 5
    assert bench.process.signals == [signal.SIGTERM]
    assert bench.owner.events.count("Unhealthy") == 3


async def test_a_liveness_probes_own_grace_bounds_its_kill() -> None:
    container = Container("c", "i", liveness=probe("l", failure_threshold=1, grace_s=0))
    bench = Bench(container, deaf=True, l=["no"])
    assert (await bench.end()).code == 137


async def test_readiness_comes_and_goes_without_a_restart() -> None:
    container = Container("c", "i", readiness=probe("r", failure_threshold=1))
    bench = Bench(container, r=[None, None, "no"])
    await bench.owner.ready.wait()
    bench.owner.unready.clear()
    await bench.owner.unready.wait()
    assert bench.process.signals == []
    bench.stop.set()
    await bench.end()


async def test_a_stop_runs_the_hook_before_sigterm() -> None:
    bench = Bench(Container("c", "i", pre_stop=Handler(exec=("hook",))), hook=[None])
    await bench.owner.ready.wait()
    bench.stop.set()
    assert (await bench.end()).code == 0
    assert bench.handlers.ran == ["hook"]
    assert bench.process.signals == [signal.SIGTERM]


async def test_a_deaf_container_is_killed_when_the_grace_is_over() -> None:
    bench = Bench(Container("c", "i"), deaf=True)
    await bench.owner.ready.wait()
    bench.grace.limit(600)
    bench.stop.set()
    bench.grace.limit(0)
    assert (await bench.end()).code == 137
    assert bench.process.signals == [signal.SIGTERM, signal.SIGKILL]


async def test_a_hook_that_hangs_does_not_outlive_the_grace() -> None:
    bench = Bench(Container("c", "i", pre_stop=Handler(exec=("hook",))), hook=["hang"])
    await bench.owner.ready.wait()
    bench.stop.set()
    bench.grace.limit(0)
    assert (await bench.end()).code == 0
    assert bench.process.signals == [signal.SIGTERM]


async def test_a_failed_post_start_hook_ends_the_run() -> None:
    bench = Bench(Container("c", "i", post_start=Handler(exec=("hook",))), hook=["no"])
    await bench.end()
    assert "FailedPostStartHook" in bench.owner.events
    assert bench.owner.health == (False, False)


async def test_cancelling_kills_without_grace() -> None:
    bench = Bench(Container("c", "i"), deaf=True)
    await bench.owner.ready.wait()
    bench.task.cancel()
    await asyncio.wait((bench.task,))
    assert bench.process.signals == [signal.SIGKILL]
