"""Traces of turns by OpenTelemetry: the only module that imports it, imported only if it is used.

A turn is a span of kind server, continuing a client's `traceparent`; below it a span for each
claim and each leg. A leg's own context goes to its engine, so an engine that traces itself hangs
its spans below the leg's. Attributes are counts and words of the router's own; the conversation is
the digest that stands in the turn's line, and that line has the trace's id.
"""

import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final
from urllib.parse import unquote, urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from disaggpair_router.errors import ConfigError, RouterError
from disaggpair_router.seen.config import Tracing
from disaggpair_router.turnlog import TurnRecord

_NAME: Final = "disaggpair_router"
_TRACES_PATH: Final = "/v1/traces"
_CLOSE_S: Final = 3.0
"""For what is left at the end; the rest is lost."""
_HEADERS_ENV: Final = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
_HEADER: Final = re.compile(r"[A-Za-z0-9_.-]+=([!#-+\-.-:<-\[\]-~ ]*)")
"""What the SDK reads as a header in its most liberal form, or less."""
_CONTEXT: Final = ("traceparent", "tracestate")


class OtelTrace:
    """See `tracing.TurnTrace`."""

    def __init__(self, tracer: "OtelTracer", span: Span) -> None:
        self._tracer = tracer
        self._span = span

    @property
    def id(self) -> str:
        """See `tracing.TurnTrace`."""
        context = self._span.get_span_context()
        return format(context.trace_id, "032x") if context.trace_flags.sampled else ""

    @contextmanager
    def claim(self) -> Iterator[None]:
        """See `tracing.TurnTrace`."""
        with self._child("claim", SpanKind.INTERNAL):
            yield

    @contextmanager
    def leg(self, leg: str, headers: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
        """See `tracing.TurnTrace`."""
        with self._child(leg, SpanKind.CLIENT) as span:
            sent = {name: headers[name] for name in headers if name.lower() not in _CONTEXT}
            self._tracer.propagator.inject(sent, set_span_in_context(span))
            yield sent

    def event(self, name: str, **attributes: str) -> None:
        """See `tracing.TurnTrace`."""
        self._span.add_event(name, {key: value for key, value in attributes.items() if value})

    def end(self, record: TurnRecord) -> None:
        """See `tracing.TurnTrace`."""
        attributes = {
            "disaggpair.conversation": record.conversation,
            "disaggpair.api": record.api,
            "disaggpair.way": record.way,
            "disaggpair.why": record.why,
            "disaggpair.kv": record.lookup,
            "disaggpair.miss": record.miss,
            "disaggpair.retries": record.retries,
            "disaggpair.prompt_tokens": record.prompt_tokens,
            "disaggpair.cached_tokens": record.cached_tokens,
            "disaggpair.completion_tokens": record.completion_tokens,
            "http.response.status_code": record.status,
            "error.type": record.error,
        }
        self._span.set_attributes(
            {name: value for name, value in attributes.items() if value not in (None, "")}
        )
        if record.error:
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()

    @contextmanager
    def _child(self, name: str, kind: SpanKind) -> Iterator[Span]:
        span = self._tracer.start(name, kind, self._span)
        try:
            yield span
        except BaseException as error:
            # Its message may be an engine's or name a field of the request.
            code = error.code if isinstance(error, RouterError) else type(error).__name__
            span.set_attribute("error.type", code)
            span.set_status(Status(StatusCode.ERROR))
            raise
        finally:
            span.end()


class OtelTracer:
    """See `tracing.Tracer`.

    Args:
        processor: gets the spans.
        ratio: share of the turns that are recorded, where no client's context decides it.
        pair: name of the pair.
    """

    def __init__(self, processor: SpanProcessor, *, ratio: float, pair: str) -> None:
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(ratio)),
            resource=Resource.create({"service.name": _NAME, "disaggpair.pair": pair}),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer(_NAME)
        self.propagator = TraceContextTextMapPropagator()

    def turn(self, headers: Mapping[str, str]) -> OtelTrace:
        """See `tracing.Tracer`."""
        parent = self.propagator.extract({name.lower(): headers[name] for name in headers})
        return OtelTrace(self, self._tracer.start_span("turn", parent, SpanKind.SERVER))

    def start(self, name: str, kind: SpanKind, parent: Span) -> Span:
        """A span below another one."""
        return self._tracer.start_span(name, set_span_in_context(parent), kind)

    def close(self) -> None:
        """See `tracing.Tracer`."""
        # A collector that does not answer holds the SDK for half a minute.
        thread = threading.Thread(target=self._provider.shutdown, daemon=True)
        thread.start()
        thread.join(_CLOSE_S)


def otlp_tracer(tracing: Tracing, pair: str) -> OtelTracer:
    """A tracer that sends to a collector from a thread of its own; what is too much is dropped.

    Raises ConfigError when the collector's headers cannot be sent.
    """
    refuse_headers(os.environ)
    exporter: SpanExporter = OTLPSpanExporter(endpoint=traces_url(tracing.endpoint))
    return OtelTracer(BatchSpanProcessor(exporter), ratio=tracing.sample_ratio, pair=pair)


def refuse_headers(environment: Mapping[str, str]) -> None:
    """Raise ConfigError for headers that cannot be sent, without a word of them.

    The SDK would log them, value and all, and go on.
    """
    for name in _HEADERS_ENV:
        entries = [entry.strip() for entry in environment.get(name, "").split(",")]
        for number, entry in enumerate(entries, 1):
            if entry and not _is_header(entry):
                raise ConfigError(
                    f"{name} is wrong at entry {number}: it must hold NAME=VALUE of printable "
                    "ASCII, separated by commas, with %2C for a comma."
                )


def _is_header(entry: str) -> bool:
    found = _HEADER.fullmatch(entry)
    if not found:
        return False
    value = unquote(found[1]).strip()
    return value.isascii() and value.isprintable()


def traces_url(endpoint: str) -> str:
    """Where spans are sent: the endpoint, with the usual path if it has none."""
    bare = urlsplit(endpoint).path in ("", "/")
    return endpoint.rstrip("/") + _TRACES_PATH if bare else endpoint
