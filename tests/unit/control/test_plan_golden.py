"""The plan of each golden case and each example, byte for byte; `--refresh-golden` rewrites."""

from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from disaggpair_operator.model import Facts
from disaggpair_operator.preview import preview

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden"
CASES = {path.parent.name: path for path in sorted(GOLDEN.glob("*/pair.yaml"))} | {
    f"example-{path.stem}": path for path in sorted((ROOT / "examples").glob("*.yaml"))
}
FACTS = Facts(router_image="example/disaggpair:v0.1.0")


@pytest.mark.parametrize("case", CASES)
def test_the_plan_is_what_the_golden_file_says(case: str, refresh_golden: bool) -> None:
    expected = GOLDEN / case / "expected.yaml"
    text = preview(CASES[case].read_text(), FACTS)
    if refresh_golden:
        expected.parent.mkdir(exist_ok=True)
        expected.write_text(text)
    assert text == expected.read_text()


@pytest.mark.parametrize("case", CASES)
def test_every_planned_object_has_the_shape_that_kubernetes_wants(case: str) -> None:
    for obj in yaml.safe_load_all(preview(CASES[case].read_text(), FACTS)):
        kubernetes_validate.validate(obj, "1.36", strict=True)
