"""Whose request is it: keys, the gateway's header, and the addresses on which it counts."""

import hashlib

import pytest

from disaggpair_router.conversation import Keys
from disaggpair_router.door import Door
from disaggpair_router.errors import BadRequest, Forbidden, RouterError, Unauthorized
from disaggpair_router.tenants import (
    OPEN,
    Tenant,
    Tenants,
    digest_of,
    is_name,
    networks,
    presented_key,
)

A, B = Tenant("a"), Tenant("b")
DIGESTS = {digest_of("key-a"): "a", digest_of("key-b"): "b"}
TRUSTED = networks(["10.0.0.0/8", "fd00::/8"])
GATEWAY, OUTSIDE = "10.1.2.3", "192.0.2.1"
BY_KEY = Tenants(DIGESTS)
BY_HEADER = Tenants(None, header="X-Tenant", trusted=TRUSTED)
BY_BOTH = Tenants(DIGESTS, header="X-Tenant", trusted=TRUSTED)
KEYS = Keys(b"s" * 32)


def door(tenants: Tenants, engine_key: str = "") -> Door:
    return Door(tenants, KEYS, engine_key=engine_key)


def test_without_tenants_everybody_is_the_open_one() -> None:
    assert Tenants().is_open
    assert Tenants().tenant_of("key-a", OUTSIDE, "a") == OPEN


def test_a_key_is_known_by_the_digest_that_sha256sum_prints() -> None:
    assert digest_of("key-a") == hashlib.sha256(b"key-a").digest()


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("key-a", A),
        ("key-b", B),
        ("key-c", "unknown_key"),
        ("KEY-A", "unknown_key"),
        ("", "no_key"),
    ],
)
def test_a_key_tells_the_tenant(key: str, found: object) -> None:
    assert BY_KEY.tenant_of(key, OUTSIDE, "") == found


def test_no_key_is_good_when_all_were_taken_away() -> None:
    assert BY_KEY.with_digests({}).tenant_of("key-a", OUTSIDE, "") == "unknown_key"


@pytest.mark.parametrize(
    ("peer", "named", "found"),
    [
        (GATEWAY, "a", A),
        ("fd00::1", "a", A),
        ("::ffff:10.1.2.3", "a", A),
        (GATEWAY, "", "no_name"),
        (GATEWAY, "a, b", "bad_name"),
        (GATEWAY, "caf\u00e9", "bad_name"),
        pytest.param(OUTSIDE, "a", "not_the_gateway", id="h78-spoofed"),
        pytest.param("::ffff:192.0.2.1", "a", "not_the_gateway", id="h78-spoofed-mapped"),
        pytest.param("", "a", "not_the_gateway", id="h78-no-address"),
        pytest.param("unix", "a", "not_the_gateway", id="h78-no-ip"),
    ],
)
def test_the_header_counts_from_the_gateway_only(peer: str, named: str, found: object) -> None:
    assert BY_HEADER.tenant_of("", peer, named) == found


@pytest.mark.parametrize(
    ("key", "peer", "named", "found"),
    [
        ("", GATEWAY, "c", Tenant("c")),
        ("key-of-the-gateway's-own", GATEWAY, "a", A),
        ("key-a", GATEWAY, "a", A),
        ("key-a", GATEWAY, "b", "other_tenant"),
        ("key-a", GATEWAY, "", A),
        ("", GATEWAY, "", "no_key"),
        pytest.param("key-a", OUTSIDE, "b", A, id="h78-spoofed-with-a-key"),
        pytest.param("", OUTSIDE, "b", "no_key", id="h78-spoofed-without"),
    ],
)
def test_the_gateway_decides_but_not_against_anothers_key(
    key: str, peer: str, named: str, found: object
) -> None:
    assert BY_BOTH.tenant_of(key, peer, named) == found


@pytest.mark.parametrize(
    ("authorization", "api_key", "key"),
    [
        ("Bearer k", "", "k"),
        ("bearer  k ", "", "k"),
        ("", "k", "k"),
        ("Bearer k", "other", "k"),
        ("Basic dTpw", "k", ""),
        ("k", "", ""),
        ("Bearer", "", ""),
        ("", "", ""),
    ],
)
def test_a_key_comes_as_bearer_or_else_as_x_api_key(
    authorization: str, api_key: str, key: str
) -> None:
    assert presented_key(authorization, api_key) == key


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("team-a.b_c", True),
        ("org:x/y@z", True),
        ("a" * 253, True),
        ("a" * 254, False),
        ("", False),
        ("a b", False),
        ("a,b", False),
        ("a\n", False),
        ("\u00e4", False),
    ],
)
def test_a_tenants_name_is_fit_for_headers_and_logs(name: str, fits: bool) -> None:
    assert is_name(name) is fits


@pytest.mark.parametrize(
    ("tenants", "peer", "headers", "error", "message"),
    [
        (BY_KEY, OUTSIDE, {}, Unauthorized, "Give your API key as Authorization: Bearer KEY."),
        (BY_KEY, OUTSIDE, {"X-Api-Key": "z"}, Unauthorized, "This API key is not known."),
        (BY_HEADER, OUTSIDE, {"X-Tenant": "a"}, Forbidden, "Only the gateway may ask this router."),
        (BY_HEADER, GATEWAY, {}, Forbidden, "The gateway named no tenant."),
        (
            BY_HEADER,
            GATEWAY,
            {"X-Tenant": "a;b"},
            Forbidden,
            "The gateway's name for the tenant cannot be one.",
        ),
        (
            BY_BOTH,
            GATEWAY,
            {"X-Tenant": "b", "Authorization": "Bearer key-a"},
            Forbidden,
            "The API key belongs to another tenant than the gateway says.",
        ),
    ],
)
def test_who_may_not_come_in_is_told_why(
    tenants: Tenants, peer: str, headers: dict[str, str], error: type[RouterError], message: str
) -> None:
    with pytest.raises(error) as refused:
        door(tenants).caller(headers, peer)
    assert refused.value.message == message


@pytest.mark.parametrize("tenants", [Tenants(), BY_KEY, BY_BOTH], ids=["open", "key", "both"])
@pytest.mark.parametrize("name", ["Authorization", "X-Api-Key"])
@pytest.mark.parametrize("value", ["Bearer \udcff", "Bearer caf\u00e9", "Bearer a\tb"])
def test_bytes_that_no_key_can_hold_are_a_bad_request(
    tenants: Tenants, name: str, value: str
) -> None:
    with pytest.raises(BadRequest, match=rf"^The header {name} may hold printable ASCII"):
        door(tenants).caller({name.lower(): value}, GATEWAY)


def test_a_tenant_has_one_owner_however_it_came_in() -> None:
    by_key = door(BY_BOTH).caller({"authorization": "Bearer key-a"}, OUTSIDE)
    by_gateway = door(BY_BOTH).caller({"x-tenant": "a"}, GATEWAY)
    assert by_key.owner == by_gateway.owner == KEYS.tenant("a")
    assert by_key.tenant == "a"


def test_h77_open_callers_are_told_apart_by_what_they_present() -> None:
    open_door = door(Tenants())
    seen = [{}, {"authorization": "Bearer a"}, {"x-api-key": "a"}, {"x-api-key": "b"}]
    assert len({open_door.caller(headers, OUTSIDE).owner for headers in seen}) == 4


def test_an_open_routers_callers_speak_for_themselves_at_the_engines() -> None:
    caller = door(Tenants()).caller({"Authorization": "Bearer a", "X-Tenant": "b"}, GATEWAY)
    assert caller.credentials == {"authorization": "Bearer a"}
    assert door(Tenants()).caller({}, GATEWAY).credentials == {}


@pytest.mark.parametrize("tenants", [BY_KEY, BY_BOTH], ids=["key", "both"])
def test_h86_a_tenants_key_stays_at_the_router(tenants: Tenants) -> None:
    headers = {"Authorization": "Bearer key-a", "X-Api-Key": "key-a"}
    assert door(tenants).caller(headers, OUTSIDE).credentials == {}


@pytest.mark.parametrize("tenants", [Tenants(), BY_KEY], ids=["open", "key"])
def test_h86_the_engine_key_stands_in_for_the_callers(tenants: Tenants) -> None:
    caller = door(tenants, "engine").caller({"Authorization": "Bearer key-a"}, OUTSIDE)
    assert caller.credentials == {"authorization": "Bearer engine"}
    assert "engine" not in repr(caller)
