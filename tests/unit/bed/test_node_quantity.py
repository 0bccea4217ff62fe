import pytest

from disaggpair_bed.node.quantity import in_units, parse_quantity


@pytest.mark.parametrize(
    ("text", "divisor", "units"),
    [
        ("500m", "1", 1),
        ("500m", "1m", 500),
        ("2Gi", "1Mi", 2048),
        ("1500Mi", "1Gi", 2),
        ("1e3", "1", 1000),
        ("8", "0", 8),
        ("1.5", "1m", 1500),
    ],
)
def test_a_figure_is_given_in_whole_units_rounded_up(text: str, divisor: str, units: int) -> None:
    assert in_units(text, divisor) == units


@pytest.mark.parametrize("text", ["", "Gi", "1 Gi", "1KB", "1gi"])
def test_anything_else_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity(text)
