"""The CRD file follows the schema of its kind in each supported release of Kubernetes."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).parents[2]
RELEASES = ("1.30", "1.33", "1.36", "1.37")


def definition() -> dict[str, Any]:
    text = (ROOT / "crds" / "disaggpair.dev_disaggpairs.yaml").read_text()
    document: dict[str, Any] = yaml.safe_load(text)
    return document


@pytest.mark.parametrize("release", RELEASES)
def test_the_crd_is_valid(release: str) -> None:
    kubernetes_validate.validate(definition(), release, strict=True)


def test_a_keyword_outside_the_schema_would_be_found() -> None:
    wrong = definition()
    (version,) = wrong["spec"]["versions"]
    version["schema"]["openAPIV3Schema"]["properties"]["spec"]["const"] = "x"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, RELEASES[0], strict=True)
