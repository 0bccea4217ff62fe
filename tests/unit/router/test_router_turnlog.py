"""The router's log lines: of turns, and of anything else."""

import json
import logging
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from disaggpair_router.turnlog import LineFormatter, TurnRecord


def _failed() -> logging.LogRecord:
    try:
        raise RuntimeError("broken")
    except RuntimeError:
        found = sys.exc_info()
    return logging.LogRecord("router", logging.ERROR, "x.py", 1, "A %s", ("fault",), found)


def test_a_fault_shows_where_it_happened_in_lines_for_people() -> None:
    first, *rest = LineFormatter("human").format(_failed()).splitlines()
    assert first.endswith("ERROR A fault")
    assert rest[-1] == "RuntimeError: broken"


def test_a_fault_shows_where_it_happened_in_one_json_object() -> None:
    line = json.loads(LineFormatter("json").format(_failed()))
    assert line["message"] == "A fault"
    assert line["traceback"].endswith("RuntimeError: broken")


def test_a_line_without_a_fault_is_one_line() -> None:
    record = logging.makeLogRecord({"msg": "started", "levelname": "INFO"})
    assert LineFormatter("human").format(record).endswith("INFO started")
    assert "traceback" not in json.loads(LineFormatter("json").format(record))


# -- the line of a turn ------------------------------------------------------------------------


def _full() -> TurnRecord:
    """A record of which everything is known."""
    record = TurnRecord("r", "c", 1.0, api="chat", stream=True, tenant="t", trace="1")
    record.way, record.miss = "PULL", "edited"
    record.why, record.estimates, record.error, record.retries = "kept", {"PULL": 0.5}, "x", 1
    for name in ("prompt_tokens", "cached_tokens", "completion_tokens"):
        setattr(record, name, 7)
    for one in fields(record):
        if one.name.endswith("_s"):
            setattr(record, one.name, 0.25)
    return record


def _line(record: TurnRecord, style: Any) -> str:
    log = logging.makeLogRecord({"turn": record, "levelname": "INFO", "created": 1_700_000_000.5})
    return LineFormatter(style).format(log)


def test_the_page_shows_the_fields_of_a_turns_line_in_their_order() -> None:
    page = (Path(__file__).parents[3] / "docs" / "router.md").read_text()
    table = page.partition("| field | what it is |\n|---|---|\n")[2].partition("\n\n")[0]
    named = [row.split("`")[1] for row in table.splitlines()]
    assert ["time", "level", *named] == list(json.loads(_line(_full(), "json")))


def test_every_known_value_of_a_record_is_in_its_line() -> None:
    line = json.loads(_line(_full(), "json"))
    assert line["ts"] == 1_700_000_000.25
    assert line["estimated_ms"] == {"PULL": 500.0}
    times = {name: value for name, value in line.items() if name.endswith("_ms")}
    assert times | {"estimated_ms": None} == {
        "estimated_ms": None,
        **{
            f"{one.name.removesuffix('_s')}_ms": 250.0
            for one in fields(TurnRecord)
            if one.name.endswith("_s")
        },
    }


def test_what_is_not_known_is_left_out() -> None:
    line = json.loads(_line(TurnRecord("r", "c", 1.0), "json"))
    assert set(line) == {
        "time",
        "level",
        "ts",
        "request",
        "conversation",
        "stream",
        "way",
        "status",
    }


def test_the_words_that_people_look_for_stand_bare() -> None:
    record = _full()
    assert " MISS reason=edited " in _line(record, "human")
    record.miss = None
    assert " hit " in _line(record, "human")
    assert "{" not in _line(record, "human")


def test_the_cached_tokens_are_those_of_the_engine_that_computed_the_prompt() -> None:
    def usage(cached: int, answer: int) -> dict[str, Any]:
        return {
            "prompt_tokens": 100,
            "completion_tokens": answer,
            "prompt_tokens_details": {"cached_tokens": cached},
        }

    two = TurnRecord("r", "c", 1.0)
    two.add_prompt_usage(usage(64, 1))
    assert two.completion_tokens is None
    two.prefill_s = 0.1
    two.add_usage(usage(96, 20))
    one = TurnRecord("r", "c", 1.0)
    one.add_usage(usage(32, 20))
    one.add_usage(None)
    for record, cached in ((two, 64), (one, 32)):
        assert (record.prompt_tokens, record.cached_tokens) == (100, cached)
        assert record.completion_tokens == 20
