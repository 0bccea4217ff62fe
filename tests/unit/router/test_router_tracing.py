"""Traces of turns, by the real SDK: into memory, and over HTTP to a receiver."""

import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from disaggpair_bed.fakes.upstream import (
    ScriptedEngine,
    decoding,
    failing,
    in_turn,
    prefilling,
    scripted_engine,
)
from disaggpair_bed.routing import Routed, routed
from disaggpair_router.config import RouterConfig, Tracing
from disaggpair_router.errors import ConfigError
from disaggpair_router.seen.otel import OtelTracer, otlp_tracer, refuse_headers, traces_url
from disaggpair_router.server import running_router

TRACE = "0af7651916cd43dd8448eb211c80319c"
CLIENT = "b7ad6b7169203331"


@dataclass
class Stage:
    """A router that traces every turn, and its engines."""

    front: Routed
    prefill: ScriptedEngine
    decode: ScriptedEngine
    exporter: InMemorySpanExporter

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        """By name; of equal names the last to end."""
        return {span.name: span for span in self.exporter.get_finished_spans()}

    @property
    def events(self) -> list[tuple[str, dict[str, Any]]]:
        """Of the turn."""
        return [(one.name, dict(one.attributes or {})) for one in self.spans["turn"].events]


def traced(front: Routed, ratio: float = 1.0) -> InMemorySpanExporter:
    """From now on, every turn is recorded."""
    exporter = InMemorySpanExporter()
    front.router.parts.routes.turns.tracer = OtelTracer(
        SimpleSpanProcessor(exporter), ratio=ratio, pair="one"
    )
    return exporter


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode]) as front,
    ):
        yield Stage(front, prefill, decode, traced(front))


def context(engine: ScriptedEngine) -> tuple[str, str, bool]:
    """Trace and span that an engine was given, and whether they are recorded."""
    _, trace, span, flags = engine.requests[-1].headers["traceparent"].split("-")
    return trace, span, bool(int(flags, 16) & 1)


def ids(span: ReadableSpan) -> tuple[str, str]:
    found = span.get_span_context()
    assert found is not None
    return format(found.trace_id, "032x"), format(found.span_id, "016x")


def parent(span: ReadableSpan) -> str:
    return format(span.parent.span_id, "016x") if span.parent else ""


async def test_a_turn_is_one_trace_and_each_engine_gets_the_context_of_its_leg(
    stage: Stage,
) -> None:
    await stage.front.chat("a", conversation_id="c")
    spans = stage.spans
    assert set(spans) == {"turn", "claim", "prefill", "decode"}
    trace, turn = ids(spans["turn"])
    assert parent(spans["turn"]) == ""
    assert {parent(spans[name]) for name in ("claim", "prefill", "decode")} == {turn}
    for name, engine in (("prefill", stage.prefill), ("decode", stage.decode)):
        assert context(engine) == (trace, ids(spans[name])[1], True)


async def test_a_clients_trace_goes_on(stage: Stage) -> None:
    headers = {"traceparent": f"00-{TRACE}-{CLIENT}-01", "tracestate": "vendor=1"}
    await stage.front.chat("a", headers=headers)
    turn = stage.spans["turn"]
    assert (ids(turn)[0], parent(turn)) == (TRACE, CLIENT)
    assert context(stage.decode)[0] == TRACE
    assert context(stage.decode)[1] != CLIENT
    assert stage.decode.requests[-1].headers["tracestate"] == "vendor=1"


async def test_a_client_that_is_not_recorded_is_not_recorded_here_either(stage: Stage) -> None:
    await stage.front.chat("a", headers={"traceparent": f"00-{TRACE}-{CLIENT}-00"})
    assert stage.spans == {}
    assert context(stage.decode)[::2] == (TRACE, False)


async def test_a_traceparent_that_is_none_begins_a_new_trace(stage: Stage) -> None:
    await stage.front.chat("a", headers={"traceparent": "00-nonsense"})
    assert context(stage.decode)[0] == ids(stage.spans["turn"])[0]


async def test_turns_that_are_not_sampled_still_have_a_context(stage: Stage) -> None:
    exporter = traced(stage.front, ratio=0.0)
    await stage.front.chat("a")
    assert exporter.get_finished_spans() == ()
    assert not context(stage.decode)[2]
    assert context(stage.decode)[0] == context(stage.prefill)[0]


async def test_way_miss_retry_and_fallback_are_events(stage: Stage) -> None:
    stage.prefill.script = failing(500)
    await stage.front.chat("a", conversation_id="c")
    assert stage.events == [
        ("miss", {"reason": "first_turn"}),
        ("way", {"way": "FULL"}),
        ("retry", {"leg": "prefill"}),
        ("miss", {"reason": "first_turn"}),
        ("miss", {"reason": "no_prefill"}),
        ("fallback", {"reason": "prefill_failed"}),
        ("way", {"way": "SINGLE"}),
    ]
    attributes = dict(stage.spans["turn"].attributes or {})
    assert attributes["disaggpair.way"] == "SINGLE"
    assert attributes["disaggpair.retries"] == 1
    assert "error.type" not in attributes


async def test_a_leg_that_failed_says_how_and_not_what_the_engine_said(stage: Stage) -> None:
    stage.prefill.script = in_turn(failing(500, "secret words"), prefilling())
    stage.decode.script = failing(400, "secret words")
    await stage.front.chat("a")
    kinds = [
        (span.name, (span.attributes or {}).get("error.type"), span.status.is_ok)
        for span in stage.exporter.get_finished_spans()
        if span.name != "claim"
    ]
    assert kinds == [
        ("prefill", "engine_failed", False),
        ("prefill", None, True),
        ("decode", "refused_by_engine", False),
        ("turn", "refused_by_engine", False),
    ]
    assert "secret" not in shown(stage.exporter.get_finished_spans())


async def test_no_prompt_answer_id_or_key_is_in_a_trace(stage: Stage) -> None:
    headers = {"Authorization": "Bearer secret-key", "X-Request-Id": "secret-request"}
    stage.decode.script = decoding("secret answer")
    await stage.front.chat(
        "secret words", headers=headers, conversation_id="secret-id", stream=True
    )
    text = shown(stage.exporter.get_finished_spans())
    assert "secret" not in text
    assert "127.0.0.1" not in text
    assert "first_byte" in text


def shown(spans: Sequence[ReadableSpan]) -> str:
    return "".join(str(span.to_json()) for span in spans)


async def test_a_turns_line_has_the_id_of_its_trace(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await stage.front.chat("a")
    (line,) = [one for one in caplog.records if one.name == "disaggpair_router.turn"]
    assert line.__dict__["turn"].trace == ids(stage.spans["turn"])[0]


# -- over HTTP ---------------------------------------------------------------------------------


@dataclass
class Receiver:
    """A collector's OTLP/HTTP port."""

    url: str = ""
    keys: list[str] = field(default_factory=list)
    requests: list[ExportTraceServiceRequest] = field(default_factory=list)

    async def take(self, http: web.Request) -> web.Response:
        self.keys.append(http.headers.get("x-key", ""))
        self.requests.append(ExportTraceServiceRequest.FromString(await http.read()))
        return web.Response(content_type="application/x-protobuf")

    @property
    def names(self) -> list[str]:
        """Names of all spans."""
        return sorted(
            span.name
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        )


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    app = web.Application()
    app.router.add_post("/v1/traces", receiver.take)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield receiver
    finally:
        await runner.cleanup()


async def test_a_router_that_ends_has_sent_its_spans_to_the_collector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=k")
    async with receiving() as receiver:
        async with (
            scripted_engine(prefilling()) as prefill,
            scripted_engine(decoding()) as decode,
            routed(
                [prefill],
                [decode],
                pair="one",
                tracing={"endpoint": receiver.url, "sample_ratio": 1.0},
            ) as front,
        ):
            await front.chat("a")
        assert receiver.names == ["claim", "decode", "prefill", "turn"]
        assert set(receiver.keys) == {"k"}
        (resource, *_) = receiver.requests[0].resource_spans
        told = {one.key: one.value.string_value for one in resource.resource.attributes}
        assert (told["service.name"], told["disaggpair.pair"]) == ("disaggpair_router", "one")


async def test_a_router_serves_without_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "disaggpair_router.seen.otel", None)
    fields: dict[str, Any] = {
        "endpoints": {
            "kind": "static",
            "prefill": ["http://127.0.0.1:9"],
            "decode": ["http://127.0.0.2:9"],
        },
        "host": "127.0.0.1",
        "port": 0,
        "metrics_port": 0,
    }
    async with running_router(RouterConfig.model_validate(fields)):
        pass
    fields["tracing"] = {"endpoint": "http://127.0.0.1:9"}
    with pytest.raises(ConfigError, match=r"install disaggpair\[tracing\]"):
        async with running_router(RouterConfig.model_validate(fields)):
            pass


def test_opentelemetry_is_not_imported_by_a_router_without_tracing() -> None:
    code = "import sys, disaggpair_router.server; print('opentelemetry' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://c:4318", "http://c:4318/v1/traces"),
        ("https://c/", "https://c/v1/traces"),
        ("http://c:4318/otlp/v1/traces", "http://c:4318/otlp/v1/traces"),
    ],
)
def test_spans_go_to_the_usual_path_unless_another_is_given(endpoint: str, url: str) -> None:
    assert traces_url(endpoint) == url


@pytest.mark.parametrize(
    "url", ["collector:4318", "http://", "http://u@c", "http://c:x", "http://c?a"]
)
def test_an_endpoint_that_is_no_url_is_refused(url: str) -> None:
    fields = {
        "endpoints": {"kind": "static", "prefill": ["http://p"], "decode": ["http://d"]},
        "tracing": {"endpoint": url},
    }
    with pytest.raises(ValueError, match="endpoint is not a URL"):
        RouterConfig.model_validate(fields)


@pytest.mark.parametrize(
    "headers",
    ["", "authorization=Bearer%20k3y", "a=b,c-d=e f", "a=b=c\n", " a=b , c=d ,", "a=%2C", "a="],
)
def test_headers_of_the_collector_are_taken_as_the_sdk_takes_them(headers: str) -> None:
    refuse_headers({"OTEL_EXPORTER_OTLP_HEADERS": headers})


@pytest.mark.parametrize(
    ("headers", "number"),
    [
        ("k3y", 1),
        ("Bearer k3y", 1),
        ("a=b,k3y", 2),
        ("a=k3y;b", 1),
        ('a="k3y"', 1),
        ("a=k3y\nb=c", 1),
        ("a=k3y%0Ab", 1),
        ("a=k\u00e93y", 1),
        ("a b=k3y", 1),
    ],
)
def test_headers_that_cannot_be_sent_end_the_start_and_are_not_shown(
    headers: str, number: int
) -> None:
    with pytest.raises(ConfigError) as refused:
        refuse_headers({"OTEL_EXPORTER_OTLP_HEADERS": headers})
    assert f"OTEL_EXPORTER_OTLP_HEADERS is wrong at entry {number}" in str(refused.value)
    assert "k3y" not in str(refused.value)


def test_a_tracer_is_not_made_with_headers_that_cannot_be_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "k3y")
    with pytest.raises(ConfigError, match="OTEL_EXPORTER_OTLP_TRACES_HEADERS"):
        otlp_tracer(Tracing(endpoint="http://127.0.0.1:1"), "chat")
