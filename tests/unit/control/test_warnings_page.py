"""Every warning and error that router and operator log is explained in docs/operations.md."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "operations.md").read_text()
PACKAGES = ("disaggpair_router", "disaggpair_operator")
LEVELS = {"warning", "error", "critical", "exception"}
LOGGERS = {"logger", "_log", "log"}
_PLACEHOLDER = re.compile(r"%(?:\.\d+)?[a-z]")


def texts(package: str) -> set[str]:
    """What the package logs at these levels, with … for what is filled in."""
    return {
        _PLACEHOLDER.sub("…", ast.literal_eval(call.args[0]))
        for path in sorted((ROOT / "operator" / package).rglob("*.py"))
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in LEVELS
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id in LOGGERS
    }


def explained(package: str) -> set[str]:
    heading = "The router's warnings" if package == "disaggpair_router" else "The operator's"
    part = PAGE.partition(f"\n### {heading}")[2].partition("\n#")[0]
    return set(re.findall(r"^\| `([^`]+)` \| [^|]+ \| [^|]+ \|$", part, flags=re.MULTILINE))


@pytest.mark.parametrize("package", PACKAGES)
def test_the_page_explains_each_warning_and_no_other(package: str) -> None:
    assert texts(package)
    assert explained(package) == texts(package)
