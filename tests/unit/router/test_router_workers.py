"""Several processes as one router: one port, one set of metrics, one end."""

import asyncio
import json
import os
import re
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from pydantic import ValidationError

from disaggpair_bed.fakes.upstream import decoding, prefilling, scripted_engine
from disaggpair_bed.load.routers import free_ports
from disaggpair_bed.routing import eventually
from disaggpair_router.config import RouterConfig
from disaggpair_router.gathered import gathering, merged
from disaggpair_router.metrics import Metrics
from disaggpair_router.workers import Worker

BODY = {"messages": [{"role": "user", "content": "a"}]}
URLS = {"kind": "static", "prefill": ["http://10.0.0.4:8000"], "decode": ["http://10.0.0.7:8000"]}


@dataclass
class Workers:
    process: Process
    url: str
    metrics_url: str

    async def scraped(self) -> str:
        async with aiohttp.ClientSession() as http, http.get(self.metrics_url) as response:
            return await response.text()

    async def turn(self) -> int:
        # A connection of its own, so that any worker may get it.
        async with (
            aiohttp.ClientSession() as http,
            http.post(f"{self.url}/v1/chat/completions", json=BODY) as response,
        ):
            return response.status

    def pids(self) -> list[int]:
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]


@asynccontextmanager
async def running(folder: Path, count: int = 2) -> AsyncIterator[Workers]:
    port, metrics_port = free_ports(2)
    async with scripted_engine(prefilling()) as prefill, scripted_engine(decoding()) as decode:
        fields = {
            "host": "127.0.0.1",
            "port": port,
            "metrics_port": metrics_port,
            "workers": count,
            "kv": {"bidirectional": False},
            "endpoints": {"kind": "static", "prefill": [prefill.url], "decode": [decode.url]},
        }
        (folder / "router.json").write_text(json.dumps(fields))
        log = os.open(folder / "log", os.O_CREAT | os.O_WRONLY)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "disaggpair_router", "--config", folder / "router.json"),
            stdout=log,
            env={**os.environ, "TMPDIR": str(folder)},
        )
        os.close(log)
        workers = Workers(
            process, f"http://127.0.0.1:{port}", f"http://127.0.0.1:{metrics_port}/metrics"
        )
        try:
            await eventually(lambda: _all_ready(folder, count))
            await eventually(lambda: _serves(workers))
            yield workers
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


def _all_ready(folder: Path, count: int) -> bool:
    return len(list(folder.glob("disaggpair-router-*/*.sock"))) == count


async def _serves(workers: Workers) -> bool:
    try:
        return await workers.turn() == 200
    except aiohttp.ClientError:
        return False


async def test_a_scrape_counts_the_turns_of_all(tmp_path: Path) -> None:
    async with running(tmp_path) as workers:
        before = _turns(await workers.scraped())
        for _ in range(30):
            assert await workers.turn() == 200
        for _ in range(5):
            assert _turns(await workers.scraped()) == before + 30


def _turns(text: str) -> float:
    return sum(map(float, re.findall(r"^disaggpair_router_turns_total\{.*\} (\S+)$", text, re.M)))


async def test_the_end_is_passed_on_and_is_a_success(tmp_path: Path) -> None:
    async with running(tmp_path) as workers:
        workers.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            assert await workers.process.wait() == 0
    assert not _all_ready(tmp_path, 1)


async def test_a_worker_that_dies_ends_them_all(tmp_path: Path) -> None:
    async with running(tmp_path) as workers:
        first, *_ = workers.pids()
        os.kill(first, signal.SIGKILL)
        async with asyncio.timeout(20):
            assert await workers.process.wait() == signal.SIGKILL


async def test_each_line_says_which_worker_it_is_of(tmp_path: Path) -> None:
    async with running(tmp_path) as workers:
        assert await workers.turn() == 200
    lines = (tmp_path / "log").read_text().splitlines()
    turns = [line for line in lines if " turn " in line]
    assert turns
    assert all(re.search(r" worker=[01]$", line) for line in turns)
    others = [line for line in lines if line not in turns]
    assert others
    assert all(re.match(r"\S+ [A-Z]+ worker=[01] ", line) for line in others)


async def test_workers_end_with_the_first_process(tmp_path: Path) -> None:
    async with running(tmp_path) as workers:
        pids = workers.pids()
        workers.process.kill()
        await eventually(lambda: not any(map(_runs, pids)))


def _runs(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "set kv.leases, or kv.bidirectional to false"),
        ({"kv": {"bidirectional": False}, "port": 0}, "port must be a number above 0"),
    ],
)
def test_workers_that_cannot_work_together_are_refused(fields: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        RouterConfig.model_validate({"endpoints": URLS, "workers": 2, **fields})


def test_leases_make_workers_independent() -> None:
    config = RouterConfig.model_validate(
        {"endpoints": URLS, "workers": 2, "kv": {"leases": {"port": 5700}}}
    )
    assert config.workers == 2


def counted() -> Metrics:
    metrics = Metrics()
    metrics.turns.labels("FULL").inc(3)
    metrics.leg_seconds.labels("decode").observe(0.2)
    metrics.in_flight.labels("decode").set(2)
    metrics.engines.labels("prefill", "ready").set(4)
    return metrics


def test_what_is_counted_adds_up_and_what_all_see_does_not() -> None:
    one = counted().exposition()
    lines = merged([one, one, b""]).decode().splitlines()
    assert 'disaggpair_router_turns_total{way="FULL"} 6.0' in lines
    assert 'disaggpair_router_leg_seconds_count{leg="decode"} 2.0' in lines
    assert 'disaggpair_router_leg_seconds_bucket{le="0.25",leg="decode"} 2.0' in lines
    assert 'disaggpair_router_in_flight{role="decode"} 4.0' in lines
    assert 'disaggpair_router_engines{role="prefill",state="ready"} 4.0' in lines


def test_one_exposition_stays_what_it_is() -> None:
    one = counted().exposition()
    assert sorted(merged([one]).decode().splitlines()) == sorted(one.decode().splitlines())


async def test_a_worker_that_is_silent_is_left_out(tmp_path: Path) -> None:
    metrics = counted()
    async with gathering(Worker(0, 3, tmp_path, -1), metrics) as exposition:
        async with gathering(Worker(1, 3, tmp_path, -1), metrics):
            assert b'turns_total{way="FULL"} 6.0' in await exposition()
        assert b'turns_total{way="FULL"} 3.0' in await exposition()
