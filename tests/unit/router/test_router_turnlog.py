"""The router's log lines that are not a turn's."""

import json
import logging
import sys

from disaggpair_router.turnlog import LineFormatter


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
