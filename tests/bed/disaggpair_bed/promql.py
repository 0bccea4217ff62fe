"""As much of PromQL as the alerts of this project use: an expression as a tree, and its labels."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

AGGREGATIONS: Final = ("sum", "max", "min", "avg", "count")
OVER_TIME: Final = ("rate", "increase")
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<string>"[^"]*")|(?P<number>\d+(?:\.\d+)?(?![\w.]))|(?P<range>\[\d+[smhd]\])"""
    r"""|(?P<word>[A-Za-z_:][\w:]*)|(?P<sign>=~|!~|!=|==|<=|>=|[-+*/<>=(){},]))"""
)
_COMPARISONS: Final = ("<", ">", "<=", ">=", "==", "!=")


@dataclass(frozen=True)
class Number:
    """A number."""

    text: str


@dataclass(frozen=True)
class Selector:
    """Series by name and labels."""

    name: str
    matchers: tuple[tuple[str, str, str], ...] = ()
    """Label, operator and value of each."""
    range: str = ""
    """Such as 5m; empty for the series as they are now."""


@dataclass(frozen=True)
class Call:
    """A function of its arguments."""

    name: str
    arguments: tuple["Node", ...]


@dataclass(frozen=True)
class Aggregation:
    """Series put together by labels."""

    name: str
    by: frozenset[str]
    of: "Node"


@dataclass(frozen=True)
class Binary:
    """Two expressions with a sign between them."""

    sign: str
    left: "Node"
    right: "Node"


Node: TypeAlias = "Number | Selector | Call | Aggregation | Binary"


def parse(text: str) -> Node:
    """The tree of an expression.

    Raises:
        ValueError: not an expression of this part of PromQL.
    """
    reader = _Reader(text)
    node = reader.comparison()
    if reader.next:
        raise ValueError(f"{reader.next!r} is left of {text}")
    return node


def selectors(node: Node) -> Iterator[tuple[Selector, str]]:
    """Every selector, and the function that is called with it or nothing."""
    match node:
        case Selector():
            yield node, ""
        case Call(name, arguments):
            for argument in arguments:
                for found, inner in selectors(argument):
                    yield found, inner or name
        case Aggregation(_, _, of):
            yield from selectors(of)
        case Binary(_, left, right):
            yield from selectors(left)
            yield from selectors(right)


def labels_of(node: Node) -> frozenset[str] | None:
    """The labels that the result has, None for a number.

    Raises:
        ValueError: what is not aggregated has any label, and two sides with different ones are
            never matched.
    """
    match node:
        case Number():
            return None
        case Aggregation(name, by, _):
            if not by:
                raise ValueError(f"{name} of all is one number")
            return by
        case Call("histogram_quantile", (Number(), of)):
            labels = labels_of(of)
            if labels is None or "le" not in labels:
                raise ValueError("histogram_quantile of what has no le")
            return labels - {"le"}
        case Binary(_, left, right):
            sides = [side for side in (labels_of(left), labels_of(right)) if side is not None]
            if not sides or sides[0] != sides[-1]:
                raise ValueError(f"sides with {sides}")
            return sides[0]
        case _:
            raise ValueError(f"{node} is not aggregated by labels")


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text.rstrip()):
            found = _TOKEN.match(text, at)
            if not found or not found.lastgroup:
                raise ValueError(f"{text[at:]} cannot be read")
            self._tokens.append((found.lastgroup, found[found.lastgroup]))
            at = found.end()

    @property
    def next(self) -> str:
        return self._tokens[0][1] if self._tokens else ""

    def take(self, wanted: str = "") -> tuple[str, str]:
        if not self._tokens or wanted not in ("", self.next):
            raise ValueError(f"{wanted or 'something'} is missing before {self.next!r}")
        return self._tokens.pop(0)

    def comparison(self) -> Node:
        node = self._arithmetic()
        while self.next in _COMPARISONS:
            node = Binary(self.take()[1], node, self._arithmetic())
        return node

    def _arithmetic(self) -> Node:
        node = self._operand()
        while self.next in ("+", "-", "*", "/"):
            node = Binary(self.take()[1], node, self._operand())
        return node

    def _operand(self) -> Node:
        if self.next == "(":
            return self._arguments()[0]
        kind, text = self.take()
        if kind == "number":
            return Number(text)
        if kind != "word":
            raise ValueError(f"{text!r} is no operand")
        if text in AGGREGATIONS:
            by = self._labels() if self.next == "by" else frozenset()
            (of,) = self._arguments()
            return Aggregation(text, by, of)
        if self.next == "(":
            return self._call(text)
        return self._selector(text)

    def _call(self, name: str) -> Node:
        arguments = self._arguments()
        if name in OVER_TIME and not (
            isinstance(arguments[0], Selector) and arguments[0].range and len(arguments) == 1
        ):
            raise ValueError(f"{name} of what has no range")
        return Call(name, arguments)

    def _labels(self) -> frozenset[str]:
        self.take("by")
        self.take("(")
        labels = [self.take()[1]]
        while self.next == ",":
            self.take()
            labels.append(self.take()[1])
        self.take(")")
        return frozenset(labels)

    def _arguments(self) -> tuple[Node, ...]:
        self.take("(")
        arguments = [self.comparison()]
        while self.next == ",":
            self.take()
            arguments.append(self.comparison())
        self.take(")")
        return tuple(arguments)

    def _selector(self, name: str) -> Selector:
        matchers = []
        if self.next == "{":
            while self.next in ("{", ","):
                self.take()
                label, operator, value = (self.take()[1] for _ in range(3))
                matchers.append((label, operator, value.strip('"')))
            self.take("}")
        window = self.take()[1].strip("[]") if self.next.startswith("[") else ""
        return Selector(name, tuple(matchers), window)
