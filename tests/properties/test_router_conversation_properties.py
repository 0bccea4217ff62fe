"""No two things of different owners, kinds or secrets have one key."""

from hypothesis import given
from hypothesis import strategies as st

from disaggpair_router.conversation import Keys, shared_secret

NAMES = st.text(max_size=12)
DIGESTS = st.binary(max_size=40)
RAW_TEXT = st.binary(max_size=40).map(lambda raw: raw.decode("utf-8", "surrogateescape"))


def keys(conversation_key: str, lease_key: str = "") -> Keys:
    return Keys(shared_secret(conversation_key, lease_key, lambda count: b"r" * count))


KEYS = keys("a conversation key")


@given(st.lists(NAMES, min_size=2, max_size=2, unique=True), RAW_TEXT)
def test_h77_two_tenants_never_share_the_key_of_an_id(names: list[str], text: str) -> None:
    first, second = (KEYS.tenant(name) for name in names)
    assert KEYS.id(first, text) != KEYS.id(second, text)
    assert KEYS.history(first, b"s", b"d") != KEYS.history(second, b"s", b"d")


@given(st.tuples(DIGESTS, DIGESTS, DIGESTS), st.tuples(DIGESTS, DIGESTS, DIGESTS))
def test_two_histories_share_a_key_only_when_all_their_parts_are_equal(
    one: tuple[bytes, bytes, bytes], two: tuple[bytes, bytes, bytes]
) -> None:
    assert (KEYS.history(*one) == KEYS.history(*two)) == (one == two)


@given(DIGESTS, RAW_TEXT, RAW_TEXT)
def test_two_ids_of_one_owner_share_a_key_only_when_they_are_equal(
    owner: bytes, one: str, two: str
) -> None:
    assert (KEYS.id(owner, one) == KEYS.id(owner, two)) == (one == two)


@given(DIGESTS, RAW_TEXT)
def test_keys_of_different_kinds_differ(owner: bytes, text: str) -> None:
    raw = text.encode("utf-8", "surrogateescape")
    made = [
        KEYS.id(owner, text),
        KEYS.history(owner, raw, b""),
        KEYS.tenant(text),
        KEYS.caller(text),
    ]
    assert len(set(made)) == len(made)
    assert KEYS.scope(raw) not in [key[:8] for key in made]


@given(st.text(min_size=16, max_size=40), st.text(max_size=40), DIGESTS, RAW_TEXT)
def test_keys_are_equal_across_replicas_with_one_secret(
    conversation_key: str, lease_key: str, owner: bytes, text: str
) -> None:
    one, two = keys(conversation_key, lease_key), keys(conversation_key)
    assert one.id(owner, text) == two.id(owner, text)
    assert one.scope(owner) == two.scope(owner)
    assert one.history(owner, b"s", b"d") == two.history(owner, b"s", b"d")
