"""Answers that are calls of a function: the toy's text as the one argument of it."""

import orjson

from disaggpair_bed.simengine.sequence import Delta


def arguments(text: str) -> str:
    """The arguments of the call that a whole answer is."""
    return orjson.dumps({"answer": text}).decode()


def is_first(deltas: list[Delta]) -> bool:
    """Whether the last delta is the one with which a call begins."""
    return bool(deltas[-1].text) and sum(1 for one in deltas if one.text) == 1


def piece(deltas: list[Delta]) -> str:
    """What the last delta adds to the arguments."""
    delta = deltas[-1]
    text = orjson.dumps(delta.text).decode()[1:-1]
    begins = '{"answer":"' if is_first(deltas) else ""
    return begins + text + ('"}' if delta.finish_reason else "")
