"""Which engine releases are taken, and what is said of the others."""

import pytest

from disaggpair_bed.builders import pair
from disaggpair_operator.plan.releases import UnsupportedEngine, choose_release


@pytest.mark.parametrize(
    ("engine", "sentence"),
    [
        ({"image": "e/v:v0.20.2", "connector": "Nixl"}, "the oldest that can is 0.21"),
        ({"image": "e/v:v0.30.0"}, "DisaggPair supports vLLM 0.31 to 0.33"),
        ({"image": "e/v:v0.25.1", "connector": "Nixl"}, "0.26 and later decline such a read"),
        ({"image": "e/v:v0.34.0"}, "newer than 0.33"),
        ({"image": "e/v:latest", "version": "0.20"}, "cannot transfer KV from decode to prefill"),
    ],
)
def test_an_engine_that_cannot_or_is_not_known_is_refused(
    engine: dict[str, str], sentence: str
) -> None:
    with pytest.raises(UnsupportedEngine, match=sentence):
        choose_release(pair({"engine": engine}).spec)


@pytest.mark.parametrize(
    "engine",
    [
        {"image": "e/v:v0.25.1", "connector": "Nixl", "allowUntestedVersion": True},
        {"image": "e/v:v0.34.0", "allowUntestedVersion": True},
    ],
)
def test_an_accepted_risk_stays_visible(engine: dict[str, object]) -> None:
    assert choose_release(pair({"engine": engine}).spec).risk


def test_an_old_engine_without_reads_back_is_no_risk() -> None:
    spec = pair(
        {
            "engine": {"image": "e/v:v0.25.1", "connector": "Nixl"},
            "kvTransfer": {"bidirectional": False},
        }
    ).spec
    assert choose_release(spec).risk == ""


def test_the_version_field_comes_before_the_tag() -> None:
    spec = pair({"engine": {"image": "e/v:v0.20.2", "version": "0.33.0"}}).spec
    assert choose_release(spec).release.minor == (0, 33)


def test_a_model_built_past_the_rules_still_needs_a_version() -> None:
    spec = pair().spec
    engine = spec.engine.model_copy(update={"image": "e/v:latest"})
    with pytest.raises(UnsupportedEngine, match=r"spec\.engine\.version is required"):
        choose_release(spec.model_copy(update={"engine": engine}))
