"""Ids of conversations, and the keys made of them."""

import hashlib
import hmac
from typing import Any

import pytest

from disaggpair_router.conversation import Conversation, Keys, conversation_of, shared_secret
from disaggpair_router.errors import BadRequest, ConfigError
from disaggpair_router.history import scope_digest

SECRET = b"s" * 32
KEYS = Keys(SECRET)
OWNER = KEYS.tenant("a")
NAMES = ("x-conversation-id", "x-session-id")


def found(from_body: object = None, **headers: str) -> Conversation:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return conversation_of(
        from_body, named, NAMES, owner=OWNER, keys=KEYS, mint=lambda: "minted-id"
    )


def no_bytes(count: int) -> bytes:
    raise AssertionError(f"{count} bytes are not needed")


def test_keys_have_the_lengths_that_a_lease_has_room_for() -> None:
    assert len(KEYS.id(OWNER, "c")) == 16
    assert len(KEYS.scope(b"s" * 32)) == 8
    assert len(KEYS.history(OWNER, b"s" * 32, b"d" * 32)) == 16
    assert len(KEYS.tenant("a")) == len(KEYS.caller("a")) == 16


def test_h77_the_key_of_an_id_is_another_ones_for_another_owner_secret_or_id() -> None:
    keys = {
        KEYS.id(OWNER, "c"),
        KEYS.id(KEYS.tenant("b"), "c"),
        KEYS.id(KEYS.caller("a"), "c"),
        KEYS.id(OWNER, "d"),
        Keys(b"t" * 32).id(OWNER, "c"),
    }
    assert len(keys) == 5


def test_the_parts_of_a_key_cannot_change_places() -> None:
    assert KEYS.id(b"ab", "c") != KEYS.id(b"a", "bc")
    assert KEYS.history(b"ab", b"c", b"d") != KEYS.history(b"a", b"bc", b"d")
    assert KEYS.history(b"a", b"b", b"cd") != KEYS.history(b"a", b"bc", b"d")
    assert KEYS.caller("ab", "") != KEYS.caller("a", "b")
    # By length alone this one would be the other with the label moved into a part.
    assert KEYS.history(b"a", b"b", b"c") != KEYS.id(b"history", "abc")


def test_a_key_is_what_the_module_says_it_is() -> None:
    parts = (b"id", b"owner", "\u00fc".encode())
    message = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    expected = hmac.new(SECRET, message, hashlib.sha256).digest()[:16]
    assert KEYS.id(b"owner", "\u00fc") == expected


def test_a_tenant_is_never_the_caller_of_the_same_text() -> None:
    assert KEYS.tenant("a") != KEYS.caller("a")


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"model": "adapter"}, id="h60-adapter"),
        pytest.param({"model": "base", "cache_salt": "s"}, id="h79-salt"),
    ],
)
def test_another_scope_has_another_key(changed: dict[str, Any]) -> None:
    plain, other = scope_digest("chat", {"model": "base"}), scope_digest("chat", changed)
    assert KEYS.scope(plain) != KEYS.scope(other)
    assert KEYS.history(OWNER, plain, b"d") != KEYS.history(OWNER, other, b"d")


def test_replicas_with_one_conversation_key_make_equal_keys() -> None:
    one, two = (Keys(shared_secret("k" * 16, lease, no_bytes)) for lease in ("x", "y"))
    assert one.id(OWNER, "c") == two.id(OWNER, "c")
    assert one.scope(b"s") == two.scope(b"s")
    assert one.history(OWNER, b"s", b"d") == two.history(OWNER, b"s", b"d")


def test_without_a_conversation_key_the_lease_key_makes_them() -> None:
    secret = shared_secret("", "lease", no_bytes)
    assert secret == shared_secret("", "lease", no_bytes)
    assert secret != shared_secret("", "another", no_bytes)


def test_the_two_ways_to_a_secret_never_meet() -> None:
    assert shared_secret("k" * 16, "", no_bytes) != shared_secret("", "k" * 16, no_bytes)


def test_without_any_key_the_secret_is_the_processs_own() -> None:
    assert shared_secret("", "", lambda count: b"r" * count) == b"r" * 32


def test_a_short_conversation_key_is_refused_without_being_shown() -> None:
    with pytest.raises(ConfigError) as refused:
        shared_secret("short-and-secre", "lease", no_bytes)
    assert str(refused.value) == (
        "DISAGGPAIR_CONVERSATION_KEY has 15 characters: it must have at least 16."
    )


def test_the_bodys_id_comes_before_headers_in_their_order() -> None:
    assert found("b", x_session_id="s", x_conversation_id="c").id == "b"
    assert found(x_session_id="s", x_conversation_id="c").id == "c"
    assert found("", x_session_id="s").id == "s"


def test_an_id_is_minted_where_none_came() -> None:
    one = found("", x_session_id="")
    assert (one.id, one.is_minted) == ("minted-id", True)
    assert one.key == KEYS.id(OWNER, "minted-id")


def test_a_given_id_is_not_minted_and_shows_only_as_a_digest() -> None:
    one = found("c")
    assert (one.is_minted, one.owner, one.key) == (False, OWNER, KEYS.id(OWNER, "c"))
    assert one.label == one.key.hex()[:12]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param("x" * 257, "must have at most 256 bytes", id="h80-long"),
        pytest.param("\u00fc" * 129, "must have at most 256 bytes", id="h80-long-in-bytes"),
        pytest.param("a\r\nX-Evil: 1", "must have no control characters", id="h80-line-break"),
        pytest.param("a\x00", "must have no control characters", id="h80-nul"),
        pytest.param("a\x1b[2J", "must have no control characters", id="h80-escape"),
        pytest.param("a\x85", "must have no control characters", id="h80-next-line"),
        pytest.param(3, "conversation_id must be a string", id="number"),
        pytest.param(["c"], "conversation_id must be a string", id="list"),
    ],
)
def test_what_is_no_id_is_refused(given: object, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        found(given)


@pytest.mark.parametrize("given", ["x" * 256, "\u00fc" * 128, "a b", "\u8a71"])
def test_any_other_text_of_the_length_is_an_id(given: str) -> None:
    assert found(given).id == given


def test_h80_header_bytes_that_are_no_text_make_a_key_of_their_own() -> None:
    raw = b"caf\xe9".decode("utf-8", "surrogateescape")
    assert found(x_session_id=raw).key != found(x_session_id="caf\u00e9").key
