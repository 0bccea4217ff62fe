"""The responses and messages APIs in front of simulated engines: what reads, what streams, what
a client sees of a fault."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest

from disaggpair_bed.routing import Reply, Routed, eventually, routed
from disaggpair_bed.simengine import RunningEngine, running_engine
from disaggpair_router.environment import Environment

KEY = "lease-key-of-the-pair"
LONG = "Tell me of the river and of all the towns that lie on it, one after the other. " * 3
TOOL = {"name": "look_up", "description": "x", "parameters": {"type": "object"}}

Json = dict[str, Any]


def events(reply: Reply) -> list[Json]:
    """The data of a stream's events."""
    return [orjson.loads(line[6:]) for line in reply.raw.splitlines() if line.startswith(b"data: ")]


@dataclass
class ResponsesTalk:
    """A conversation over `/v1/responses`, whose items are sent again with every turn."""

    front: Routed
    fields: Json = field(default_factory=dict)
    items: list[Any] = field(default_factory=list)

    async def say(self, text: str, **fields: Any) -> Reply:
        self.items.append({"role": "user", "content": text})
        body = {"model": "toy", "input": self.items, **self.fields, **fields}
        reply = await self.front.post("/v1/responses", body)
        if reply.status == 200:
            self.items += self.response(reply)["output"]
        return reply

    @staticmethod
    def response(reply: Reply) -> Json:
        whole: Json = events(reply)[-1]["response"] if b"event: " in reply.raw else reply.json
        return whole


@dataclass
class MessagesTalk:
    """A conversation over `/v1/messages`."""

    front: Routed
    fields: Json = field(default_factory=dict)
    messages: list[Any] = field(default_factory=list)

    async def say(self, text: str, **fields: Any) -> Reply:
        self.messages.append({"role": "user", "content": text})
        body = {"model": "toy", "max_tokens": 200, "messages": self.messages, **self.fields}
        reply = await self.front.post("/v1/messages", body | fields)
        if reply.status == 200:
            self.messages.append({"role": "assistant", "content": self.content(reply)})
        return reply

    @staticmethod
    def content(reply: Reply) -> Any:
        if b"event: " not in reply.raw:
            return reply.json["content"]
        deltas = (event.get("delta", {}) for event in events(reply))
        return "".join(delta.get("text", "") for delta in deltas)


TALKS: Any = {"responses": ResponsesTalk, "messages": MessagesTalk}
APIS = pytest.mark.parametrize("api", list(TALKS))
STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])


def bodies(engine: RunningEngine, path: str) -> list[Json]:
    """What an engine was sent for a route."""
    return [one.body for one in engine.recorder.received if one.path == path]


@dataclass
class Bench:
    """Engines with our connector or without, and a router."""

    prefill: RunningEngine
    decode: RunningEngine
    front: Routed

    @property
    def reads(self) -> int:
        """Tokens that P has read from D."""
        return self.prefill.engine.core.stats.external_kv_transfer


@asynccontextmanager
async def one_bench(
    *, leases: bool, release: str = "0.33.0", flags: tuple[str, ...] = (), **config: Any
) -> AsyncIterator[Bench]:
    ours: dict[str, Any] = {"release": release}
    if leases:
        ours |= {"connector": "DisaggPair", "lease_key": KEY}
    async with (
        running_engine("prefill", "--no-enable-prefix-caching", *flags, **ours) as prefill,
        running_engine("decode", *flags, **ours) as decode,
    ):
        kv: dict[str, Any] = {"handle_in_stream": release == "0.33.0"}
        if leases:
            kv["leases"] = {"port": urlsplit(decode.lease_urls[0]).port}
        environment = Environment.of({"DISAGGPAIR_LEASE_KEY": KEY})
        async with routed([prefill], [decode], environment=environment, kv=kv, **config) as front:
            if leases:
                held: Any = front.router.parts.held
                await eventually(
                    lambda: any(map(held._followers.can_claim, held._followers._tasks))
                )
            yield Bench(prefill, decode, front)


@APIS
@STREAMS
@pytest.mark.parametrize("release", ["0.33.0", "0.32.0"])
@pytest.mark.parametrize("has_id", [True, False], ids=["id", "history"])
async def test_every_turn_but_the_first_reads_under_leases(
    api: str, stream: bool, release: str, has_id: bool
) -> None:
    async with one_bench(leases=True, release=release) as bench:
        talk = TALKS[api](bench.front, {"conversation_id": "c"} if has_id else {})
        for _ in range(3):
            assert (await talk.say(LONG, stream=stream)).status == 200
        assert (bench.front.hits, bench.front.misses) == (2, {"first_turn": 1})
        assert bench.reads > 0


@APIS
async def test_every_turn_but_the_first_reads_with_handles(api: str) -> None:
    async with one_bench(leases=False) as bench:
        talk = TALKS[api](bench.front)
        for _ in range(3):
            reply = await talk.say(LONG)
            assert reply.status == 200
            assert b"kv_transfer_params" not in reply.raw
        assert (bench.front.hits, bench.front.misses) == (2, {"first_turn": 1})


@pytest.mark.parametrize("release", ["0.33.0", "0.32.0"])
async def test_streams_of_responses_have_the_handle_in_every_release(release: str) -> None:
    async with one_bench(leases=False, release=release) as bench:
        talk = ResponsesTalk(bench.front)
        for _ in range(3):
            reply = await talk.say(LONG, stream=True)
            assert b"kv_transfer_params" not in reply.raw
            assert events(reply)[0]["type"] == "response.created"
            assert len(events(reply)) > 8
        assert (bench.front.hits, bench.front.misses) == (2, {"first_turn": 1})


async def test_streams_of_messages_are_for_one_engine_without_leases() -> None:
    async with one_bench(leases=False) as bench:
        talk = MessagesTalk(bench.front)
        for _ in range(2):
            assert (await talk.say(LONG, stream=True)).status == 200
        assert bench.front.misses == {"unsupported": 2}
        assert bench.front.count("turns_total", way="SINGLE") == 2
        assert bench.decode.engine.oracle.handles == {}


async def test_streams_of_messages_have_two_legs_where_d_keeps_nothing() -> None:
    async with (
        running_engine("prefill", bidirectional=False) as prefill,
        running_engine("decode", bidirectional=False) as decode,
        routed([prefill], [decode], kv={"bidirectional": False}) as front,
    ):
        assert (await MessagesTalk(front).say(LONG, stream=True)).status == 200
        assert front.count("turns_total", way="FULL") == 1


@APIS
@pytest.mark.parametrize("leases", [False, True], ids=["handles", "leases"])
async def test_answers_are_those_of_one_engine(api: str, leases: bool) -> None:
    async with one_bench(leases=leases) as bench, running_engine("both") as alone:
        talk = TALKS[api](bench.front)
        async with routed([alone], ["http://127.0.0.1:1"], wait_ready=False) as direct:
            right = TALKS[api](direct)
            for _ in range(3):
                here = await talk.say(LONG)
                there = await right.say(LONG)
                assert here.status == there.status == 200
                key = "output" if api == "responses" else "content"
                assert texts(here.json[key]) == texts(there.json[key])


def texts(parts: list[Json]) -> list[Any]:
    """What items or blocks say, without their ids."""
    return [part.get("text") or part["content"][0]["text"] for part in parts]


@APIS
@STREAMS
async def test_tools_make_the_round_trip(api: str, stream: bool) -> None:
    tool = (
        {"type": "function", **TOOL}
        if api == "responses"
        else {"name": "look_up", "input_schema": {"type": "object"}}
    )
    async with one_bench(leases=True) as bench:
        talk = TALKS[api](bench.front, {"tools": [tool]})
        reply = await talk.say(LONG + "#call", stream=stream)
        assert reply.status == 200
        if api == "responses":
            call = talk.response(reply)["output"][-1]
            assert call["type"] == "function_call"
            talk.items.append(
                {"type": "function_call_output", "call_id": call["call_id"], "output": "42"}
            )
        elif not stream:
            call = reply.json["content"][-1]
            result = {"type": "tool_result", "tool_use_id": call["id"], "content": "42"}
            talk.messages.append({"role": "user", "content": [result]})
        assert (await talk.say("go on", stream=stream)).status == 200
        assert bench.front.hits == 1


async def test_h46_the_prefill_leg_of_responses_makes_one_token_and_stores_nothing() -> None:
    async with one_bench(leases=False) as bench:
        talk = ResponsesTalk(bench.front)
        reply = await talk.say(
            LONG, store=True, max_output_tokens=50, include=[], x_new=[1], top_logprobs=2
        )
        assert reply.status == 200
        (prefill,) = bodies(bench.prefill, "/v1/responses")
        (decode,) = bodies(bench.decode, "/v1/responses")
        assert (prefill["max_output_tokens"], prefill["stream"]) == (1, False)
        assert prefill["store"] is decode["store"] is False
        assert prefill["x_new"] == decode["x_new"] == [1]
        assert "include" not in prefill
        assert decode["include"] == []
        assert (decode["max_output_tokens"], decode["top_logprobs"]) == (50, 2)


async def test_h46_the_prefill_leg_of_messages_makes_one_token() -> None:
    thinking = {"type": "enabled", "budget_tokens": 1024}
    async with one_bench(leases=False) as bench:
        reply = await MessagesTalk(bench.front).say(
            LONG, max_tokens=2000, stop_sequences=["zzz"], thinking=thinking, x_new=[1]
        )
        assert reply.status == 200
        (prefill,) = bodies(bench.prefill, "/v1/messages")
        (decode,) = bodies(bench.decode, "/v1/messages")
        assert (prefill["max_tokens"], decode["max_tokens"]) == (1, 2000)
        assert prefill["thinking"] == decode["thinking"] == thinking
        assert prefill["x_new"] == decode["x_new"] == [1]
        assert "stop_sequences" not in prefill
        assert decode["stop_sequences"] == ["zzz"]


@APIS
async def test_h75_parameters_of_the_client_never_reach_an_engine(api: str) -> None:
    bad = {"do_remote_prefill": True, "remote_host": "203.0.113.1"}
    async with one_bench(leases=False) as bench:
        nested = {"vllm_xargs": {"kv_transfer_params": bad}}
        reply = await TALKS[api](bench.front).say(LONG, kv_transfer_params=bad, **nested)
        assert reply.status == 200
        for engine in (bench.prefill, bench.decode):
            assert all(b"203.0.113.1" not in one.raw for one in engine.recorder.received)


@pytest.mark.parametrize("field", ["previous_response_id", "conversation", "background"])
async def test_h98_what_needs_an_engines_memory_is_refused_by_name(field: str) -> None:
    async with one_bench(leases=False) as bench:
        reply = await ResponsesTalk(bench.front).say("hi", **{field: "resp_1"})
        assert reply.status == 400
        assert field in reply.json["error"]["message"]
        assert bodies(bench.prefill, "/v1/responses") == []
        for path in ("/v1/responses/resp_1", "/v1/responses/resp_1/cancel"):
            assert (await bench.front.post(path, {})).status == 404
        assert (await bench.front.get("/v1/responses/resp_1")).status == 404


@pytest.mark.parametrize(
    ("api", "fields"),
    [
        ("responses", {"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]}),
        ("responses", {"truncation": "auto"}),
        ("responses", {"truncation": None}),
        ("messages", {"tool_choice": {"type": "tool", "name": "look_up"}}),
    ],
)
async def test_turns_that_a_transfer_cannot_serve_run_alone(api: str, fields: Json) -> None:
    tools = [{"name": "look_up", "input_schema": {"type": "object"}}]
    extra = {"tools": tools} if api == "messages" else {}
    async with one_bench(leases=True) as bench:
        talk = TALKS[api](bench.front)
        assert (await talk.say(LONG, **extra, **fields)).status == 200
        assert bench.front.misses == {"unsupported": 1}
        assert bodies(bench.prefill, "/v1/" + api) == []
        (decode,) = bodies(bench.decode, "/v1/" + api)
        assert "kv_transfer_params" not in decode


async def test_errors_of_messages_have_anthropics_shape() -> None:
    async with one_bench(leases=False, fallback="Refuse") as bench:
        talk = MessagesTalk(bench.front)
        refused = await talk.say("hi", max_tokens=-1)
        assert refused.status == 400
        assert refused.json["type"] == "error"
        assert refused.json["error"]["type"] == "invalid_request_error"
        assert "max_tokens" in refused.json["error"]["message"]
        malformed = await bench.front.post("/v1/messages", b"{")
        assert malformed.json["error"]["type"] == "invalid_request_error"
        assert malformed.json["request_id"] == malformed.headers["X-Request-Id"]
        bench.prefill.faults.add("status", status=503, count=None)
        busy = await talk.say("hi")
        assert (busy.status, busy.json["error"]["type"]) == (503, "overloaded_error")
        bench.prefill.faults.clear()
        bench.prefill.faults.add("status", status=500, count=None)
        failed = await talk.say("hi")
        assert (failed.status, failed.json["error"]["type"]) == (502, "api_error")


@APIS
@pytest.mark.parametrize("kind", ["stream_error", "cut_stream", "truncate_stream"])
async def test_a_broken_stream_ends_with_an_error_event(api: str, kind: str) -> None:
    async with one_bench(leases=True) as bench:
        bench.decode.faults.add(kind, after=3)
        body = {"model": "toy", "stream": True, "conversation_id": "c", "max_tokens": 99}
        text = [{"role": "user", "content": LONG}]
        reply = await bench.front.post(talk_path(api), body | {given(api): text})
        assert reply.status == 200
        last = events(reply)[-1]
        assert last["type"] == "error"
        assert last["error"]["message"]
        assert b"event: error\n" in reply.raw
        if api == "responses":
            assert last["sequence_number"] == events(reply)[-2]["sequence_number"] + 1
        assert bench.front.handles == 0


def talk_path(api: str) -> str:
    return "/v1/" + api


def given(api: str) -> str:
    return "input" if api == "responses" else "messages"


async def test_prompts_of_token_ids_use_leases() -> None:
    async with one_bench(leases=True) as bench:
        prompt = list(range(1000, 1200))
        body = {"model": "toy", "max_tokens": 4, "conversation_id": "c"}
        for length in (100, 150, 200):
            sent = {**body, "prompt": prompt[:length]}
            assert (await bench.front.post("/v1/completions", sent)).status == 200
        assert (bench.front.hits, bench.front.misses) == (2, {"first_turn": 1})


async def test_prompts_of_token_ids_use_no_handles() -> None:
    async with one_bench(leases=False) as bench:
        body = {"model": "toy", "prompt": list(range(1000, 1100)), "conversation_id": "c"}
        for _ in range(2):
            assert (await bench.front.post("/v1/completions", body)).status == 200
        assert bench.front.misses == {"unsupported": 2}


@pytest.mark.parametrize("tokenize", [True, False])
async def test_the_tokenizer_is_offered_only_if_asked_for(tokenize: bool) -> None:
    async with one_bench(leases=False, tokenize=tokenize) as bench:
        reply = await bench.front.post("/tokenize", {"model": "toy", "prompt": "hello"})
        assert reply.status == (200 if tokenize else 404)
        if tokenize:
            assert reply.json["count"] == len(reply.json["tokens"])
            assert (await bench.front.post("/tokenize", b"[]")).status == 400


@pytest.mark.parametrize("tokenize", [True, False])
async def test_anthropics_count_of_tokens_is_offered_with_the_tokenizer(tokenize: bool) -> None:
    path = "/v1/messages/count_tokens"
    body = {"model": "toy", "messages": [{"role": "user", "content": LONG}]}
    async with one_bench(leases=False, tokenize=tokenize) as bench:
        reply = await bench.front.post(path, body)
        assert reply.status == (200 if tokenize else 404)
        if tokenize:
            assert reply.json["input_tokens"] > 10
            refused = await bench.front.post(path, b"[]")
            assert (refused.status, refused.json["type"]) == (400, "error")


async def test_a_key_in_the_header_of_anthropics_clients_reaches_engines() -> None:
    async with one_bench(leases=False) as bench:
        body = {"model": "toy", "max_tokens": 9, "messages": [{"role": "user", "content": LONG}]}
        reply = await bench.front.post("/v1/messages", body, headers={"X-Api-Key": "k"})
        assert reply.status == 200
        for engine in (bench.prefill, bench.decode):
            (received,) = engine.recorder.received
            assert received.headers["authorization"] == "Bearer k"
            assert "x-api-key" not in received.headers
