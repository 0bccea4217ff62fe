"""What the tree must and must not hold."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path
    for root in ("operator", "connector", "tests/bed")
    for path in (ROOT / root).rglob("*.py")
    if "__pycache__" not in path.parts
)


def test_the_operator_folder_is_a_source_root_and_no_package() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists()


def test_pythons_own_operator_module_wins_at_the_root_of_the_tree() -> None:
    program = "import operator, collections; print(operator.__file__)"
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, '.'); {program}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(ROOT) not in done.stdout


def test_importing_the_connector_does_not_import_vllm_or_torch() -> None:
    program = (
        "import sys, disaggpair_connector, disaggpair_connector.contract; "
        "sys.exit(bool({'vllm', 'torch', 'nixl'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_contract_needs_the_standard_library_only() -> None:
    tree = ast.parse((ROOT / "connector/disaggpair_connector/contract.py").read_text())
    roots = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
        )
    }
    assert roots <= sys.stdlib_module_names


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_stays_under_300_lines(path: Path) -> None:
    allowed = {"v1alpha1.py": 700}  # one API version is read and reviewed as a whole
    assert len(path.read_text().splitlines()) <= allowed.get(path.name, 300)


_SILENCED = re.compile(r"# (?:type: ignore|noqa)[^#]*$")
_WITH_REASON = re.compile(r"#\snoqa: [A-Z0-9, ]+ - \S")


def test_whatever_silences_a_checker_has_its_reason_beside_it() -> None:
    bare = [
        f"{path.relative_to(ROOT)}:{number}"
        for root in ("operator", "connector", "tests")
        for path in sorted((ROOT / root).rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if _SILENCED.search(line) and not _WITH_REASON.search(line)
    ]
    assert bare == []


def test_there_is_no_copy_of_a_test_modules_name() -> None:
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(names) == len(set(names))


def test_every_change_fragment_has_a_name_that_the_changelog_takes() -> None:
    names = {path.name for path in (ROOT / "changes").iterdir()} - {"README.md"}
    pattern = re.compile(r"[a-z0-9-]+\.(added|changed|fixed|removed)\.md")
    assert [name for name in names if not pattern.fullmatch(name)] == []


def test_every_link_of_the_documentation_leads_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([\w./-]+\.md)(?:#[^)]*)?\)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert broken == []
