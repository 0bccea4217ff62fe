"""The text of a lease's place: what any router of the pair reads back."""

import string

from hypothesis import given
from hypothesis import strategies as st

from disaggpair_connector.handle import MAX_CONVERSATION
from disaggpair_router.leases.place import Place, parse_place

PLACE = Place(b"i" * 16, b"s" * 8, b"h" * 16, 7)

places = st.builds(
    Place,
    st.binary(min_size=16, max_size=16),
    st.binary(min_size=8, max_size=8),
    st.binary(min_size=16, max_size=16),
    st.integers(0, 2**32 - 1),
)


@given(places)
def test_a_place_comes_back_from_its_text(place: Place) -> None:
    assert parse_place(place.text()) == place


@given(places)
def test_its_text_fits_into_a_lease_and_a_header(place: Place) -> None:
    text = place.text()
    assert len(text) <= MAX_CONVERSATION
    assert set(text) <= set(string.ascii_letters + string.digits + ".-_=")


@given(st.none() | st.text())
def test_any_other_text_is_no_place(text: str | None) -> None:
    assert parse_place(text) is None


def test_a_text_of_another_version_length_or_alphabet_is_no_place() -> None:
    text = PLACE.text()
    for other in ("2" + text[1:], text[2:], text[:-4], text + "AAAA", "1." + "é" * 60):
        assert parse_place(other) is None
