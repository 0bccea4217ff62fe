"""The demo's table, its verdict and its JSON record. Pure but for the file it writes."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from disaggpair_bed.demo.conversation import Conversation, Turn

_COLUMNS = (
    ("turn", "turn"),
    ("prompt tokens", "prompt_tokens"),
    ("computed on P", "computed_on_p"),
    ("from P's cache", "from_p_cache"),
    ("read from D", "read_from_d"),
    ("first token ms", "ttft_ms"),
)


def table(turns: Sequence[Turn]) -> str:
    """One line for each turn under aligned headings."""
    rows = [[title for title, _ in _COLUMNS]]
    rows += [[str(getattr(turn, name)) for _, name in _COLUMNS] for turn in turns]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )


def faults(seen: Conversation, expected: int) -> list[str]:
    """What keeps the run from being a success.

    KV has to move in every turn but the first, and the last answer has to be the one that comes
    without any KV of earlier turns.
    """
    found = []
    if len(seen.turns) != expected:
        found.append(f"{len(seen.turns)} of {expected} turns were answered")
    for turn in seen.turns:
        if not turn.answer_characters:
            found.append(f"turn {turn.turn}: the answer is empty")
        if turn.turn > 1 and turn.read_from_d <= 0:
            found.append(f"turn {turn.turn}: P read no tokens from D")
    if seen.last_answer != seen.recomputed:
        found.append(
            "the last answer is not the one without reuse: alike in "
            f"{seen.equal_characters} of {len(seen.recomputed)} characters"
        )
    return found


def write(
    path: Path,
    *,
    engine: str,
    seen: Conversation,
    steps: Mapping[str, float],
    conditions: Sequence[Mapping[str, Any]],
    found: Sequence[str],
) -> None:
    """Write the record: what ran, how long each step took, each turn, the verdict."""
    record = {
        "engine": engine,
        "ok": not found,
        "faults": list(found),
        "turns": [turn.as_dict() for turn in seen.turns],
        "last_answer": {
            "characters": len(seen.last_answer),
            "as_recomputed": seen.equal_characters,
        },
        "conditions": [dict(condition) for condition in conditions],
        "seconds": dict(steps),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=2) + "\n")
