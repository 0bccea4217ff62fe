"""A pair with leases behind a router, an engine that serves alone, and programs that ask both."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from disaggpair_bed.routing import Routed, eventually, routed
from disaggpair_bed.simengine import RunningEngine, running_engine
from disaggpair_router.environment import Environment

_KEY = "lease-key-of-the-pair"
_BOUND_S = 100.0
_TAIL = 3_000


@dataclass
class ClientBench:
    """What clients talk to."""

    prefill: RunningEngine
    decode: RunningEngine
    alone: RunningEngine
    front: Routed

    async def ask(self, *command: str | Path) -> tuple[Any, Any]:
        """What a program says of the router and of the engine that serves alone.

        It gets the two base URLs and writes a list of two JSON values as its last line.
        AssertionError, with what it said, when it fails.
        """
        out = await run([*command, self.front.url, self.alone.url])
        routed, direct = orjson.loads(out.splitlines()[-1])
        return routed, direct

    @property
    def reads(self) -> int:
        """Tokens that P has read from D."""
        return self.prefill.engine.core.stats.external_kv_transfer

    def findings(self) -> list[str]:
        """What was wrong at the engines."""
        return [finding for one in (self.prefill, self.decode) for finding in one.findings]


@asynccontextmanager
async def client_bench(*flags: str) -> AsyncIterator[ClientBench]:
    """P has no cache of its own, so that every hit is a read."""
    ours: dict[str, Any] = {"connector": "DisaggPair", "lease_key": _KEY}
    async with (
        running_engine("prefill", "--no-enable-prefix-caching", *flags, **ours) as prefill,
        running_engine("decode", *flags, **ours) as decode,
        running_engine("both", *flags) as alone,
    ):
        kv = {"leases": {"port": urlsplit(decode.lease_urls[0]).port}}
        environment = Environment.of({"DISAGGPAIR_LEASE_KEY": _KEY})
        async with routed([prefill], [decode], environment=environment, kv=kv) as front:
            held: Any = front.router.parts.held
            await eventually(lambda: any(map(held._followers.can_claim, held._followers._tasks)))
            bench = ClientBench(prefill, decode, alone, front)
            yield bench
    assert bench.findings() == []


async def run(
    command: Sequence[str | Path], folder: Path | None = None, **environment: str
) -> bytes:
    """What a program writes; AssertionError when it fails or does not end in time."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env=_environment(environment),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_BOUND_S):
            out, err = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    said = (out + err).decode()[-_TAIL:]
    assert process.returncode == 0, said
    return out


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    """Nothing of the caller's that a client library heeds."""
    kept = ("PATH", "HOME", "LANG", "TMPDIR", "XDG_CACHE_HOME")
    own = {key: value for key, value in os.environ.items() if key in kept}
    quiet = {"PYTHONDONTWRITEBYTECODE": "1", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
    # LiteLLM would fetch a table of prices.
    return {**own, **quiet, "LITELLM_LOCAL_MODEL_COST_MAP": "True", **more}
