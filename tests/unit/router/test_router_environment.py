"""The keys that a router finds in its environment."""

import pytest

from disaggpair_router.environment import Environment
from disaggpair_router.errors import ConfigError


def test_without_keys_every_process_has_a_secret_of_its_own() -> None:
    one, two = Environment.of({}), Environment.of({"DISAGGPAIR_LEASE_KEY": ""})
    assert (one.engine_key, one.lease_key) == ("", "")
    assert len({one.conversation_secret, two.conversation_secret}) == 2
    assert Environment().conversation_secret != Environment().conversation_secret


def test_replicas_with_one_key_have_one_secret() -> None:
    by_lease = {"DISAGGPAIR_LEASE_KEY": "l" * 16}
    by_key = {**by_lease, "DISAGGPAIR_CONVERSATION_KEY": "k" * 16}
    secrets = [Environment.of(one).conversation_secret for one in (by_lease, by_lease, by_key)]
    assert secrets[0] == secrets[1] != secrets[2]


def test_keys_are_never_shown() -> None:
    variables = {
        "DISAGGPAIR_ENGINE_KEY": "secret-one",
        "DISAGGPAIR_LEASE_KEY": "secret-two-of-more",
        "DISAGGPAIR_CONVERSATION_KEY": "secret-three-of-more",
    }
    found = Environment.of(variables)
    assert (found.engine_key, found.lease_key) == ("secret-one", "secret-two-of-more")
    assert "secret-" not in repr(found)
    assert repr(found.conversation_secret) not in repr(found)


@pytest.mark.parametrize("name", ["DISAGGPAIR_ENGINE_KEY", "DISAGGPAIR_LEASE_KEY"])
@pytest.mark.parametrize("key", ["a b", "a\n", "caf\u00e9", "\udcff"])
def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(name: str, key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Environment.of({name: key})
    assert str(refused.value) == f"{name} holds a character that a header cannot carry."


def test_a_short_lease_key_is_refused_since_it_is_a_secret_too() -> None:
    with pytest.raises(ConfigError) as refused:
        Environment.of({"DISAGGPAIR_LEASE_KEY": "short", "DISAGGPAIR_CONVERSATION_KEY": "k" * 16})
    assert str(refused.value) == (
        "DISAGGPAIR_LEASE_KEY has 5 characters: it must have at least 16."
    )
