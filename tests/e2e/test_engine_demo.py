"""The whole vertical with real engines: what `make demo` shows, read from its record."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest


@pytest.mark.timeout(900)
def test_five_turns_read_their_history_from_decode(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "disaggpair_bed.cli", "demo", "--run-dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((tmp_path / "demo.json").read_text())
    assert record["engine"] == "cpu"
    assert record["faults"] == []
    turns = record["turns"]
    assert [turn["turn"] for turn in turns] == [1, 2, 3, 4, 5]
    assert turns[0]["read_from_d"] == 0
    for before, turn in pairwise(turns):
        # D holds the turn before with its answer, all but the last token.
        assert turn["read_from_d"] >= before["prompt_tokens"]
        assert (
            turn["computed_on_p"] + turn["from_p_cache"] + turn["read_from_d"]
            == (turn["prompt_tokens"])
        )
    ready = {entry["type"]: entry["status"] for entry in record["conditions"]}
    assert ready["Ready"] == "True"
