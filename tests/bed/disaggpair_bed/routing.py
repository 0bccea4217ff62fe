"""A router in this process, in front of the engines of a test, and a client that talks to it."""

import asyncio
import inspect
import io
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import aiohttp
import orjson

from disaggpair_router.config import RouterConfig
from disaggpair_router.environment import Environment
from disaggpair_router.server import Router, running_router

_BOUND_S = 20.0


@dataclass
class Clock:
    """A monotonic clock that a test moves."""

    offset: float = 0.0

    def __call__(self) -> float:
        """Seconds."""
        return time.monotonic() + self.offset


@dataclass
class Reply:
    """What the client got."""

    status: int
    headers: Any
    raw: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return orjson.loads(self.raw)

    @property
    def chunks(self) -> list[Any]:
        """The stream's chunks."""
        lines = (line[6:] for line in self.raw.splitlines() if line.startswith(b"data: "))
        return [orjson.loads(line) for line in lines if line != b"[DONE]"]

    @property
    def text(self) -> str:
        """The answer of either form."""
        if not self.raw.startswith(b"data: "):
            message: str = self.json["choices"][0]["message"]["content"]
            return message
        deltas = (choice["delta"] for chunk in self.chunks for choice in chunk["choices"])
        return "".join(delta.get("content") or "" for delta in deltas)


@dataclass
class Routed:
    """A router, and a session of a client with it."""

    router: Router
    http: aiohttp.ClientSession
    clock: Clock
    url: str

    async def chat(self, *messages: Any, headers: Any = None, **fields: Any) -> Reply:
        """One chat turn; a string is a message of the user."""
        body = {"model": "toy", "messages": [as_message(item) for item in messages], **fields}
        return await self.post("/v1/chat/completions", body, headers=headers)

    async def post(self, path: str, body: Any, headers: Any = None) -> Reply:
        """Any request with a JSON body, or with bytes as they are."""
        data = body if isinstance(body, bytes) else orjson.dumps(body)
        async with self.http.post(path, data=io.BytesIO(data), headers=headers) as response:
            return Reply(response.status, response.headers, await response.read())

    async def get(self, path: str, headers: Any = None) -> Reply:
        """Any resource."""
        async with self.http.get(path, headers=headers) as response:
            return Reply(response.status, response.headers, await response.read())

    def count(self, name: str, **labels: str) -> float:
        """The value of one of the router's series; 0 when it does not exist yet."""
        registry = self.router.parts.metrics.registry
        return registry.get_sample_value(f"disaggpair_router_{name}", labels) or 0.0

    @property
    def handles(self) -> int:
        """Handles that wait."""
        return int(self.count("handles"))

    @property
    def misses(self) -> dict[str, int]:
        """Turns without a handle, by reason."""
        return self._lookups("miss", "reason")

    @property
    def hits(self) -> int:
        """Turns with a handle that P took."""
        return sum(self._lookups("hit", "reason").values())

    def _lookups(self, result: str, label: str) -> dict[str, int]:
        (metric,) = self.router.parts.metrics.lookups.collect()
        return {
            sample.labels[label]: int(sample.value)
            for sample in metric.samples
            if sample.name.endswith("_total") and sample.labels["result"] == result
        }


@dataclass
class Dialogue:
    """A conversation as a client keeps it: everything is sent again with every turn."""

    routed: Routed
    fields: dict[str, Any] = field(default_factory=dict)
    messages: list[dict[str, Any]] = field(default_factory=list)

    async def say(self, text: str, headers: Any = None, **fields: Any) -> Reply:
        """One turn; the answer joins the history when there is one."""
        self.messages.append(as_message(text))
        sent = {**self.fields, **fields}
        reply = await self.routed.chat(*self.messages, headers=headers, **sent)
        if reply.status == 200:
            self.messages.append({"role": "assistant", "content": reply.text})
        return reply

    def copy(self) -> Self:
        """The same history, to be continued otherwise."""
        return type(self)(self.routed, dict(self.fields), list(self.messages))


async def waiting_dialogue(routed: Routed) -> Dialogue:
    """A conversation with an id after its first turn, whose handle waits for the next."""
    dialogue = Dialogue(routed, {"conversation_id": "c-1"})
    assert (await dialogue.say("one")).status == 200
    assert routed.handles == 1
    return dialogue


def as_message(item: Any) -> Any:
    """A string as a message of the user, anything else as it is."""
    return {"role": "user", "content": item} if isinstance(item, str) else item


async def eventually(holds: Callable[[], Any], bound_s: float = _BOUND_S) -> None:
    """Wait until a condition, awaited if need be, holds; AssertionError when it never does."""
    end = time.monotonic() + bound_s
    while True:
        found = holds()
        if await found if inspect.isawaitable(found) else found:
            return
        assert time.monotonic() < end, "the condition did not come true"
        await asyncio.sleep(0.005)


@asynccontextmanager
async def routed(
    prefill: Sequence[Any],
    decode: Sequence[Any],
    *,
    wait_ready: bool = True,
    environment: Environment | None = None,
    **config: Any,
) -> AsyncIterator[Routed]:
    """A router in front of engines (objects with `url`, or URLs), and a client session."""
    clock = Clock()
    fields: dict[str, Any] = {
        "endpoints": {
            "kind": "static",
            "prefill": [getattr(engine, "url", engine) for engine in prefill],
            "decode": [getattr(engine, "url", engine) for engine in decode],
        },
        "host": "127.0.0.1",
        "port": 0,
        "metrics_port": 0,
        **config,
    }
    fields["kv"] = {"handle_in_stream": True, **fields.get("kv", {})}
    fields["timeouts"] = {"probe_s": 0.05, "drain_s": 5, **fields.get("timeouts", {})}
    config_model = RouterConfig.model_validate(fields)
    async with running_router(config_model, environment=environment, clock=clock) as router:
        url = f"http://127.0.0.1:{router.port}"
        async with aiohttp.ClientSession(url) as http:
            one = Routed(router, http, clock, url)
            if wait_ready:
                wanted = len(prefill) + len(decode)
                await eventually(
                    lambda: sum(item.ready for item in router.parts.endpoints) == wanted
                )
            yield one
