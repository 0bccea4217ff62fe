"""A router that is killed in the middle of a turn, and the one that comes after it (h82)."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from disaggpair_bed.chaos.bench import LEASE_KEY, Bench, lease_bench
from disaggpair_bed.chaos.truth import Truth
from disaggpair_bed.routing import Dialogue, as_message, eventually
from disaggpair_connector import contract

ID = {"conversation_id": "c"}
LONG = "Tell me of the river and of all the towns that lie on it, one after the other. " * 3
CHAT = "/v1/chat/completions"


@asynccontextmanager
async def router_process(bench: Bench, folder: Path) -> AsyncIterator[tuple[int, str]]:
    """A router in a process of its own: its process id and its URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = {
        "endpoints": {
            "kind": "static",
            "prefill": [one.url for one in bench.prefills],
            "decode": [one.url for one in bench.decodes],
        },
        "host": "127.0.0.1",
        "port": port,
        "metrics_port": 0,
        "kv": {"handle_in_stream": True, "leases": {"port": bench.lease_port}},
        "timeouts": {"probe_s": 0.1},
    }
    file = folder / "router.json"
    file.write_bytes(orjson.dumps(config))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "disaggpair_router",
        "--config",
        str(file),
        env={**os.environ, contract.LEASE_KEY_ENV: LEASE_KEY},
        stdout=asyncio.subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        async with aiohttp.ClientSession() as http:

            async def is_ready() -> bool:
                with suppress(aiohttp.ClientError):
                    async with http.get(f"{url}/readyz") as response:
                        return response.status == 200
                return False

            await eventually(is_ready, 60)
        yield process.pid, url
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_h82_a_router_that_is_killed_in_a_turn_costs_one_computation(
    tmp_path: Path, engines_end_well: list[str]
) -> None:
    # What a killed router had asked for is aborted at the engines.
    engines_end_well.append("abort_during_read")
    async with lease_bench(extra={contract.EXTRA_LEASE_CLAIM: 1.0}) as bench:
        truth = Truth(bench.decode.options)

        def right(messages: list[Any]) -> str:
            answers = truth.answers(CHAT, {"model": "toy", "messages": messages})
            assert answers is not None
            return answers[0].text

        messages = [as_message(LONG)]
        async with (
            router_process(bench, tmp_path) as (pid, url),
            aiohttp.ClientSession(url) as http,
        ):
            async with http.post(CHAT, json={"messages": messages, **ID}) as response:
                answer = (await response.json())["choices"][0]["message"]["content"]
            assert answer == right(messages)
            messages += [{"role": "assistant", "content": answer}, as_message("on")]
            bench.prefill.faults.add("delay", delay_s=3600)
            sending = asyncio.create_task(http.post(CHAT, json={"messages": messages, **ID}))
            await eventually(lambda: len(bench.prefill.recorder.received) == 2)
            os.kill(pid, signal.SIGKILL)
            with suppress(aiohttp.ClientError):
                (await sending).close()
        async with bench.router() as front:
            talk = Dialogue(front, dict(ID), messages[:-1])
            first = await talk.say("on")
            assert (first.status, first.text) == (200, right(messages))
            # The killed router's claim lapses in D, and its lease is found again or replaced.
            second = await talk.say("on")
            assert second.text == right(talk.messages[:-1])
            assert front.hits >= 1
            assert sum(front.misses.values()) <= 1
