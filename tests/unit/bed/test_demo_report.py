"""The demo's counters, table and verdict."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from disaggpair_bed.demo.conversation import Conversation, Turn
from disaggpair_bed.demo.counters import PromptTokens, parse
from disaggpair_bed.demo.report import faults, table, write

PAGE = """
# TYPE vllm:prompt_tokens_by_source_total counter
vllm:prompt_tokens_by_source_total{engine="0",model_name="tiny",source="local_compute"} 1.2e+03
vllm:prompt_tokens_by_source_total{engine="0",model_name="tiny",source="local_cache_hit"} 32.0
vllm:prompt_tokens_by_source_total{engine="0",model_name="tiny",source="external_kv_transfer"} 640.0
vllm:prompt_tokens_total{engine="0",model_name="tiny"} 1872.0
"""
FIRST = Turn(1, 900, 900, 0, 0, 250.0, 96)
SECOND = Turn(2, 1100, 204, 0, 896, 120.0, 96)


def test_the_counters_are_read_by_source() -> None:
    assert parse(PAGE) == PromptTokens(computed=1200, cached=32, read=640)


def test_an_engine_that_has_counted_nothing_reads_as_zero() -> None:
    assert parse("") == PromptTokens()


def test_a_turn_is_the_difference_of_two_readings() -> None:
    assert PromptTokens(10, 2, 30).since(PromptTokens(4, 1, 0)) == PromptTokens(6, 1, 30)


def seen(*turns: Turn, last: str = "abcd", recomputed: str = "abcd") -> Conversation:
    return Conversation(list(turns), last, recomputed)


def test_kv_that_moves_after_the_first_turn_is_a_success() -> None:
    assert faults(seen(FIRST, SECOND), 2) == []


def test_an_answer_that_differs_without_reuse_is_a_fault() -> None:
    (fault,) = faults(seen(FIRST, SECOND, recomputed="abxy"), 2)
    assert fault.endswith("alike in 2 of 4 characters")


@pytest.mark.parametrize(
    ("turns", "sentence"),
    [
        ([FIRST, replace(SECOND, read_from_d=0)], "turn 2: P read no tokens from D"),
        ([FIRST, replace(SECOND, answer_characters=0)], "turn 2: the answer is empty"),
        ([FIRST], "1 of 2 turns were answered"),
    ],
)
def test_whatever_did_not_happen_is_a_fault(turns: list[Turn], sentence: str) -> None:
    assert faults(seen(*turns), 2) == [sentence]


def test_the_table_lines_its_columns_up() -> None:
    lines = table([FIRST, SECOND]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[2].split() == ["2", "1100", "204", "0", "896", "120.0"]


def test_the_record_holds_turns_steps_conditions_and_the_verdict(tmp_path: Path) -> None:
    path = tmp_path / "run" / "demo.json"
    write(
        path,
        engine="sim",
        seen=seen(FIRST),
        steps={"a": 1.5},
        conditions=[{"type": "Ready"}],
        found=["x"],
    )
    record = json.loads(path.read_text())
    assert record["ok"] is False
    assert record["turns"][0]["prompt_tokens"] == 900
    assert record["seconds"] == {"a": 1.5}
    assert record["conditions"] == [{"type": "Ready"}]
