"""Questions to the syntax tree of one function. All of them take None for a function not there."""

import ast
from collections.abc import Iterator
from itertools import pairwise

from disaggpair_bed.releases.surface import Function

Position = tuple[int, int]
"""Line and column in the module."""


def text(function: Function | None) -> str:
    """The function's own text, in one spelling; empty without one."""
    return ast.unparse(function) if function else ""


def called(node: ast.expr) -> str:
    """What is called, `self.x.y` in `self.x.y(...)`; empty for anything but a call."""
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


def calls(function: Function | None) -> list[tuple[Position, str]]:
    """Position and name of every call, in the order of the text."""
    if function is None:
        return []
    return sorted(
        ((node.lineno, node.col_offset), called(node))
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
    )


def called_names(function: Function | None) -> set[str]:
    """The names of all calls."""
    return {name for _, name in calls(function)}


def follow(function: Function | None, *names: str) -> bool:
    """Whether there is a call of each, every one somewhere after the one before."""
    rest = iter(calls(function))
    return all(any(name == wanted for _, name in rest) for wanted in names)


def starts_with(function: Function | None, *names: str) -> bool:
    """Whether the first call of each stands before the first call of the next."""
    positions = [
        next((position for position, name in calls(function) if name == wanted), None)
        for wanted in names
    ]
    found = [position for position in positions if position is not None]
    return len(found) == len(names) and all(one < other for one, other in pairwise(found))


def branches(function: Function | None) -> Iterator[ast.If]:
    """Every `if`."""
    for node in ast.walk(function) if function else ():
        if isinstance(node, ast.If):
            yield node


def loops(function: Function | None) -> Iterator[ast.For]:
    """Every `for`."""
    for node in ast.walk(function) if function else ():
        if isinstance(node, ast.For):
            yield node


def assignments(function: Function | None) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Target and value of every plain assignment."""
    for node in ast.walk(function) if function else ():
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield target, node.value


def returns_of_none(function: Function | None) -> list[ast.Return]:
    """Every `return None` and bare `return`, in the order of the text."""
    found = [
        node
        for node in (ast.walk(function) if function else ())
        if isinstance(node, ast.Return)
        and (node.value is None or (isinstance(node.value, ast.Constant) and not node.value.value))
    ]
    return sorted(found, key=lambda node: node.lineno)


def stand(within: str, *parts: str) -> bool:
    """Whether the parts stand in a text one after the other."""
    start = 0
    for part in parts:
        start = within.find(part, start)
        if start < 0:
            return False
    return True
