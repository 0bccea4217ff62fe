import pytest

from disaggpair_bed.node.expand import expand


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("plain", "plain"),
        ("$(A)", "1"),
        ("x$(A)y$(B)z", "x1ytwoz"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$$$(A)", "$$(A)"),
        ("$A ${A}", "$A ${A}"),
        ("$(A", "$(A"),
        ("end$", "end$"),
        ("$()", "$()"),
    ],
)
def test_expansion_is_the_one_of_kubernetes(text: str, result: str) -> None:
    assert expand(text, {"A": "1", "B": "two"}) == result


def test_a_value_is_not_expanded_again() -> None:
    assert expand("$(A)", {"A": "$(B)", "B": "1"}) == "$(B)"
