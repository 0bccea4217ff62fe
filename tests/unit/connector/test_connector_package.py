"""The distribution: what its import costs, and what it says about itself."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import disaggpair_connector
from disaggpair_connector import compat, contract

CONNECTOR = Path(disaggpair_connector.__file__).parents[1]


@pytest.mark.parametrize("module", ["", ".contract", ".errors", ".compat", ".settings"])
def test_importing_it_imports_the_standard_library_only(module: str) -> None:
    program = (
        "import sys; before = set(sys.modules); "
        f"sys.path.insert(0, {str(CONNECTOR)!r}); import disaggpair_connector{module}; "
        "foreign = {name.partition('.')[0] for name in set(sys.modules) - before}; "
        "print(sorted(foreign - sys.stdlib_module_names))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['disaggpair_connector']"


def test_the_version_is_the_distributions() -> None:
    project = tomllib.loads((CONNECTOR / "pyproject.toml").read_text())["project"]
    assert project["version"] == disaggpair_connector.__version__
    assert project["dependencies"] == []


def test_the_extra_for_developers_asks_for_what_the_table_accepts() -> None:
    project = tomllib.loads((CONNECTOR / "pyproject.toml").read_text())["project"]
    lowest, below, nixl = (
        ".".join(map(str, bound)) for bound in (compat.LOWEST, compat.BELOW, compat.LOWEST_NIXL)
    )
    assert project["optional-dependencies"]["engine"] == [
        f"vllm>={lowest},<{below}",
        f"nixl>={nixl}",
    ]


def test_the_names_that_vllm_loads_it_by_exist() -> None:
    package, _, module = contract.CONNECTOR_MODULE.partition(".")
    source = (CONNECTOR / package / f"{module}.py").read_text()
    assert f"class {contract.CONNECTOR_CLASS}(" in source


def test_only_one_module_names_vllm() -> None:
    sources = Path(disaggpair_connector.__file__).parent.glob("*.py")
    importing = {
        source.name
        for source in sources
        for line in source.read_text().splitlines()
        if line.lstrip().startswith(("import vllm", "from vllm"))
    }
    assert importing == {"engine.py"}
