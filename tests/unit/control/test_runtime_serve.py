"""The whole process but for the signal: kopf, queue and reconcile on an API server in memory."""

import argparse
import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import yaml

from disaggpair_bed.builders import FACTS, owner, pair, raw_pair
from disaggpair_bed.fakes.apiserver import FakeApiServer
from disaggpair_bed.fakes.cluster import FakeCluster
from disaggpair_operator.command import add_arguments, run
from disaggpair_operator.errors import WatchEnded
from disaggpair_operator.handlers import SETTLE_S, serve
from disaggpair_operator.keys import Key
from disaggpair_operator.model import Ref
from disaggpair_operator.ownership import ref_of
from disaggpair_operator.plan import desired
from disaggpair_operator.settings import Settings

BOUND_S = 30.0
HUSHED = ("kopf", "asyncio", "aiohttp", "kubernetes")
PAIR = Key("default", "chat").ref
SERVICE = Ref("v1", "Service", "default", "chat-prefill")
PLAN = desired(pair(), owner(), FACTS)
PLANNED = {ref_of(obj) for obj in (*PLAN.objects, *(secret.obj for secret in PLAN.secrets))}


async def eventually(question: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not question():  # noqa: ASYNC110 - the cluster in memory has no events
            await asyncio.sleep(0.01)


def write_kubeconfig(folder: Path, url: str) -> str:
    content = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(content))
    return str(path)


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
async def server(cluster: FakeCluster) -> AsyncIterator[FakeApiServer]:
    api = FakeApiServer(cluster)
    async with api.serving():
        yield api


@asynccontextmanager
async def operating(
    server: FakeApiServer, folder: Path, *, resync_s: float = 3600.0
) -> AsyncIterator[asyncio.Future[None]]:
    """The operator in a thread with a loop of its own, since at its end it ends all tasks there."""
    settings = Settings(
        router_image="example/disaggpair:v0.1.0",
        kubeconfig=write_kubeconfig(folder, server.url),
        health_port=0,
        metrics_port=0,
        resync_s=resync_s,
    )
    stops: list[Callable[[], object]] = []

    async def main() -> None:
        serving = asyncio.ensure_future(serve(settings))
        loop = asyncio.get_running_loop()
        stops.append(lambda: loop.call_soon_threadsafe(serving.cancel))
        with suppress(asyncio.CancelledError):
            await serving

    thread = asyncio.ensure_future(asyncio.to_thread(asyncio.run, main()))
    try:
        await eventually(lambda: bool(stops))
        yield thread
    finally:
        if not thread.done():
            stops[0]()
            await thread


async def test_pairs_that_were_there_and_pairs_that_come_are_served(
    cluster: FakeCluster, server: FakeApiServer, tmp_path: Path
) -> None:
    cluster.put(raw_pair())
    async with operating(server, tmp_path):
        await eventually(lambda: set(cluster.refs()) == {PAIR, *PLANNED})
        cluster.put(raw_pair(name="later"))
        await server.tell()
        await eventually(lambda: len(cluster.refs("Deployment")) == 6)


async def test_a_childs_event_leads_to_its_repair(
    cluster: FakeCluster, server: FakeApiServer, tmp_path: Path
) -> None:
    cluster.put(raw_pair())
    async with operating(server, tmp_path):
        await eventually(lambda: "status" in (cluster.take(PAIR) or {}))
        service = cluster.take(SERVICE)
        assert service is not None
        edited = json.loads(json.dumps(service))
        edited["spec"]["ports"] = []
        cluster.put(edited)
        await server.tell()
        await eventually(lambda: (cluster.take(SERVICE) or {})["spec"] == service["spec"])


async def test_the_timer_finds_what_no_event_told(
    cluster: FakeCluster, server: FakeApiServer, tmp_path: Path
) -> None:
    cluster.put(raw_pair())
    async with operating(server, tmp_path, resync_s=2.0):
        await eventually(lambda: "status" in (cluster.take(PAIR) or {}))
        async with asyncio.timeout(BOUND_S):
            await _silence(cluster)
        cluster.remove(SERVICE)
        await eventually(lambda: cluster.take(SERVICE) is not None)


async def _silence(cluster: FakeCluster) -> None:
    """Until the events of the first writes are dealt with."""
    count = -1
    while count != len(cluster.calls):
        count = len(cluster.calls)
        await asyncio.sleep(3 * SETTLE_S)


async def test_a_watch_that_is_refused_ends_the_process_with_a_sentence(
    cluster: FakeCluster, server: FakeApiServer, tmp_path: Path
) -> None:
    cluster.put(raw_pair())
    async with operating(server, tmp_path) as ended:
        await eventually(lambda: "status" in (cluster.take(PAIR) or {}))
        server.refused.add("disaggpairs")
        await server.tell()
        with pytest.raises(WatchEnded, match="could not find the requested resource"):
            async with asyncio.timeout(BOUND_S):
                await ended


@pytest.fixture
def restored_logs() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in HUSHED}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, old in levels.items():
        logging.getLogger(name).setLevel(old)


def test_a_process_that_cannot_begin_says_why_in_one_json_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], restored_logs: None
) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    kubeconfig = str(tmp_path / "none")
    assert run(parser.parse_args(["--router-image=i", f"--kubeconfig={kubeconfig}"])) == 1
    started, stopped = map(json.loads, capsys.readouterr().err.splitlines())
    assert (started["message"], started["namespaces"]) == ("started", "all")
    assert stopped["level"] == "ERROR"
    assert stopped["text"].startswith(f"there is no kubeconfig {kubeconfig}")
