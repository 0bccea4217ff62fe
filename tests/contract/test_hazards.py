"""Every hazard of docs/hazards.md has a test, and every test that the page names exists."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/hazards.md"
NUMBERS = [f"{number:02d}" for number in range(1, 45)] + ["44b"]
NUMBERS += [f"{number:02d}" for number in range(45, 102)]

_NUMBER = re.compile(r"(?:^|[_-])h(\d{2,3}b?)(?=[_-]|$)")
_ROW = re.compile(r"\| (\d{2,3}b?) \| ([^|]+) \| ([^|]+) \| ([^|]*) \|")
_NAMED = re.compile(r"`(test_[a-z0-9_]+)(?:::(test_\w+))?`")


class Found:
    """What tests there are in the repository, read from their syntax trees."""

    def __init__(self) -> None:
        self.functions: dict[str, set[str]] = defaultdict(set)
        """Names of test functions by module."""
        self.hazards: dict[str, set[str]] = defaultdict(set)
        """Modules with a test of a hazard, by its number."""
        for path in sorted((ROOT / "tests").rglob("test_*.py")):
            self._read(path.stem, ast.parse(path.read_text()))

    def _read(self, module: str, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            names = list(_names(node))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.functions[module].update(names)
            for name in names:
                for number in _NUMBER.findall(name.removeprefix("test_")):
                    self.hazards[number].add(module)


def _names(node: ast.AST) -> Iterator[str]:
    """Names of test functions, and ids of parameters."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
        yield node.name
    elif isinstance(node, ast.keyword) and node.arg in ("id", "ids"):
        for value in ast.walk(node.value):
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value.value


@pytest.fixture(scope="module")
def tests() -> Found:
    return Found()


@pytest.fixture(scope="module")
def rows() -> dict[str, str]:
    """The last column of the page by number."""
    found = _ROW.findall(PAGE.read_text())
    assert [number for number, *_ in found] == NUMBERS
    return {number: named for number, _, _, named in found}


def test_every_hazard_has_a_test(tests: Found, rows: dict[str, str]) -> None:
    untested = [
        number
        for number, named in rows.items()
        if number not in tests.hazards and not any(test for _, test in _NAMED.findall(named))
    ]
    assert untested == []


def test_every_hazard_says_where_it_is_tested(rows: dict[str, str]) -> None:
    assert [number for number, named in rows.items() if not _NAMED.findall(named)] == []


def test_every_test_that_the_page_names_exists(tests: Found, rows: dict[str, str]) -> None:
    wrong = [
        (number, module, test)
        for number, named in rows.items()
        for module, test in _NAMED.findall(named)
        if not (test in tests.functions[module] if test else module in tests.hazards[number])
    ]
    assert wrong == []


def test_no_test_has_the_number_of_no_hazard(tests: Found) -> None:
    assert sorted(tests.hazards.keys() - set(NUMBERS)) == []


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("h75_parameters_never", ["75"]),
        ("h12_h13_with_leases", ["12", "13"]),
        ("h44b_a_d", ["44b"]),
        ("h59", ["59"]),
        ("h100-pod", ["100"]),
        ("the_h75", ["75"]),
        ("hash12", []),
    ],
)
def test_a_number_is_read_from_a_name(name: str, numbers: list[str]) -> None:
    assert _NUMBER.findall(name) == numbers
