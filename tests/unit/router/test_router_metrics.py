"""The series of the router: what is told of a turn, and of the state between turns."""

import asyncio
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from disaggpair_bed.fakes.upstream import decoding, prefilling, scripted_engine
from disaggpair_bed.routing import Dialogue, eventually, routed
from disaggpair_bed.simengine import running_engine
from disaggpair_router.conversation import Keys
from disaggpair_router.errors import ClientLeft, EngineFailed
from disaggpair_router.metrics import Metrics, Series
from disaggpair_router.pick import Endpoint
from disaggpair_router.request import RequestReader
from disaggpair_router.seen.loop import EVERY_S, sample_delay
from disaggpair_router.seen.turns import SeenTurn

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
P = Endpoint("p", "http://p", "prefill", ready=True)
D = Endpoint("d", "http://d", "decode", ready=True)


def row(series: Series) -> str:
    """A series as docs/metrics.md shows it. Long sets of values have a place of their own."""
    labels = "; ".join(
        f"`{name}`: {'see below' if len(values) > 8 else ', '.join(filter(None, values))}"
        for name, values in series.labels.items()
    )
    name = series.name.removeprefix("disaggpair_router_")
    return f"| `{name}` | {series.kind} | {labels} | {series.text} |"


def test_the_page_of_metrics_shows_every_series_as_it_is() -> None:
    page = PAGE.read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `") and line.count("|") == 5]
    assert rows == [row(series) for series in Metrics().series]


def test_the_page_of_metrics_names_every_value_of_a_long_label() -> None:
    page = PAGE.read_text()
    for series in Metrics().series:
        for label, values in series.labels.items():
            for value in filter(None, values if len(values) > 8 else ()):
                assert f"`{value}`" in page, (series.name, label)


def test_series_are_registered_as_they_are_declared() -> None:
    metrics = Metrics()
    found = {
        (family.name, family.type, family.documentation) for family in metrics.registry.collect()
    }
    assert found == {
        (one.name.removesuffix("_total"), one.kind, one.text) for one in metrics.series
    }


def test_a_share_of_hits_has_a_value_before_the_first_hit() -> None:
    lines = Metrics().exposition().decode().splitlines()
    found = [line for line in lines if line.startswith("disaggpair_router_kv_lookups_total")]
    assert found == ['disaggpair_router_kv_lookups_total{reason="",result="hit"} 0.0']


def test_no_series_tells_when_it_was_made() -> None:
    metrics = Metrics()
    metrics.leg_seconds.labels("decode").observe(1)
    assert b"_created" not in metrics.exposition()


def undeclared(metrics: Metrics) -> set[tuple[str, str, str]]:
    """Values of labels that no series has announced."""
    declared = {one.name: one.labels for one in metrics.series}
    endings = ("_bucket", "_count", "_sum", "_created")
    found = set()
    for family in metrics.registry.collect():
        for sample in family.samples:
            name = sample.name
            for ending in endings:
                name = name.removesuffix(ending)
            labels = declared.get(name) or declared.get(f"{name}_total") or {}
            found |= {
                (name, label, value)
                for label, value in sample.labels.items()
                if label != "le" and value not in labels.get(label, ())
            }
    return found


async def test_no_turn_makes_a_label_that_was_not_announced() -> None:
    async with (
        running_engine("prefill") as prefill,
        running_engine("decode") as decode,
        routed([prefill], [decode]) as front,
    ):
        talk = Dialogue(front, {"conversation_id": "c"})
        for number in range(3):
            await talk.say(
                f"{number} and some more words to make a prompt", stream=bool(number % 2)
            )
        await front.chat("a", n=2)
        await front.chat("a", messages=7)
        await front.chat("a", model="none such")
        await front.post("/v1/chat/completions", {}, headers={"Authorization": "\xe9"})
        assert undeclared(front.router.parts.metrics) == set()


# -- one turn ----------------------------------------------------------------------------------


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def ticks() -> Iterator[float]:
    return map(float, count(1))


def turn(metrics: Metrics, **fields: Any) -> SeenTurn:
    """A turn whose clock goes on by a second whenever it is read; received at 0."""
    reader = RequestReader((), keys=Keys(b"k"), bidirectional=True)
    body = b'{"model": "m", "messages": [], "stream": true}'
    if not fields.pop("stream", True):
        body = body.replace(b"true", b"false")
    clock = ticks()
    return SeenTurn(
        reader.read("chat", body, {}, "r"), 0.0, metrics=metrics, clock=lambda: next(clock)
    )


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return metrics.registry.get_sample_value(f"disaggpair_router_{name}", labels) or 0.0


def test_the_routers_own_time_is_what_lies_between_the_engines_times(metrics: Metrics) -> None:
    seen = turn(metrics)
    with seen.claiming():  # 1 to 2
        pass
    with seen.leg("prefill", P, {}):  # 3 to 5
        seen.sent()  # 4
        seen.way = "FULL"
    with seen.leg("decode", D, {}):  # 6 to 11
        seen.sent()  # 7
        seen.answered()  # 8
        seen.answered()  # not a first one
        seen.first_byte()  # 9
        seen.first_byte()  # not a first one
        seen.delivered()  # 10
    seen.end()
    assert (seen.claim_s, seen.before_s, seen.prefill_s, seen.between_s) == (1, 4, 2, 2)
    assert (seen.decode_first_byte_s, seen.first_byte_s, seen.after_s) == (1, 9, 2)
    parts = {
        part: value(metrics, "added_seconds_sum", part=part)
        for part in ("before", "between", "after")
    }
    assert parts == {"before": 4, "between": 2, "after": 2}
    assert value(metrics, "ttft_seconds_sum", way="FULL") == 9
    assert value(metrics, "leg_seconds_sum", leg="prefill") == 2
    assert value(metrics, "leg_seconds_sum", leg="decode") == 5


def test_of_a_whole_answer_the_time_after_d_ends_with_the_turn(metrics: Metrics) -> None:
    seen = turn(metrics, stream=False)
    with seen.leg("decode", D, {}):  # 1 to 4
        seen.sent()  # 2
        seen.answered()  # 3
    seen.end()  # 5
    assert (seen.after_s, seen.first_byte_s) == (2, None)
    assert value(metrics, "added_seconds_count", part="between") == 0
    assert value(metrics, "ttft_seconds_count", way="NONE") == 0


def test_a_second_attempt_adds_nothing_to_the_routers_own_time(metrics: Metrics) -> None:
    seen = turn(metrics)
    for _ in range(2):
        with seen.leg("prefill", P, {}):
            seen.sent()
    for _ in range(2):
        with seen.leg("decode", D, {}):
            seen.sent()
    assert value(metrics, "added_seconds_count", part="before") == 1
    assert value(metrics, "added_seconds_count", part="between") == 1


def test_the_first_reason_of_a_miss_is_the_one_that_is_told(metrics: Metrics) -> None:
    seen = turn(metrics)
    seen.missed("refused")
    seen.fell_back("prefill_failed")
    seen.retried("prefill")
    seen.end()
    assert (seen.way, seen.miss, seen.retries) == ("SINGLE", "refused", 1)
    assert value(metrics, "kv_lookups_total", result="miss", reason="refused") == 1
    assert value(metrics, "fallbacks_total", reason="prefill_failed") == 1
    assert value(metrics, "retries_total", leg="prefill") == 1


@pytest.mark.parametrize(
    ("error", "has_begun", "status", "code"),
    [
        (ClientLeft("decode"), False, 499, "client_left_decode"),
        (EngineFailed("x"), False, 502, "engine_failed"),
        (EngineFailed("x"), True, 200, "engine_failed"),
        (RuntimeError(), False, 500, "internal_error"),
    ],
)
def test_how_a_turn_failed_is_counted_and_told(
    metrics: Metrics, error: Exception, has_begun: bool, status: int, code: str
) -> None:
    seen = turn(metrics)
    seen.failed(error, has_begun=has_begun)
    assert (seen.status, seen.error) == (status, code)
    left = isinstance(error, ClientLeft)
    assert value(metrics, "client_disconnects_total", stage="decode") == left
    assert value(metrics, "errors_total", kind=code) == (not left)


# -- the state between turns -------------------------------------------------------------------


async def test_engines_are_counted_by_whether_they_get_turns() -> None:
    def states(role: str) -> dict[str, int]:
        words = ("ready", "unready", "busy", "suspect", "stuck")
        found = {word: int(front.count("engines", role=role, state=word)) for word in words}
        return {word: number for word, number in found.items() if number}

    async with (
        running_engine("prefill") as prefill,
        running_engine("decode") as decode,
        routed([prefill], [decode]) as front,
    ):
        endpoints = front.router.parts.endpoints
        p, d = sorted(endpoints, key=lambda one: one.role, reverse=True)
        assert (states("prefill"), states("decode")) == ({"ready": 1}, {"ready": 1})
        endpoints.busy(p, 2.0)
        assert states("prefill") == {"busy": 1}
        endpoints.suspect(p, 5.0)
        endpoints.set_stuck(d, stuck=True)
        assert (states("prefill"), states("decode")) == ({"suspect": 1}, {"stuck": 1})
        front.clock.offset += 6
        assert states("prefill") == {"ready": 1}
        prefill.faults.add("unhealthy", count=None)
        await eventually(lambda: states("prefill") == {"unready": 1})


async def test_a_request_that_is_refused_at_the_door_is_counted_by_its_reason() -> None:
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(decoding()) as decode,
        routed(
            [prefill],
            [decode],
            tenants={"header": "x-tenant", "trusted_proxies": ["10.0.0.0/8"]},
        ) as front,
    ):
        assert (await front.chat("a")).status == 403
        assert (
            await front.chat("a", headers=[("X-Api-Key", "a"), ("X-Api-Key", "b")])
        ).status == 400
        assert front.count("refusals_total", reason="not_the_gateway") == 1
        assert front.count("refusals_total", reason="bad_header") == 1
        assert front.count("refusals_total", reason="no_key") == 0


async def test_the_delay_of_the_event_loop_is_what_a_timer_is_late_by() -> None:
    now, late = 0.0, iter((0.0, 0.3, -0.001))
    seen: list[float] = []

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds + next(late, 0.0)
        if len(seen) == 3:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await sample_delay(seen.append, lambda: now, sleep)
    assert seen == pytest.approx([0.0, 0.3, 0.0])
    assert now >= 3 * EVERY_S
