"""Nobody becomes a tenant without its key or its gateway."""

from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from disaggpair_router.conversation import Keys
from disaggpair_router.door import Door
from disaggpair_router.errors import BadRequest, Forbidden, Unauthorized
from disaggpair_router.tenants import Tenant, Tenants, digest_of, networks, presented_key

TRUSTED = networks(["10.0.0.0/8"])
KNOWN = {"a": "key-a", "b": "key-b"}
DIGESTS = {digest_of(key): name for name, key in KNOWN.items()}
TEXTS = st.one_of(st.sampled_from(["", "a", "b", "key-a", "Bearer key-a", "10.0.0.1"]), st.text())
OUTSIDE = st.ip_addresses().filter(
    lambda peer: getattr(peer, "ipv4_mapped", None) is None and peer not in TRUSTED[0]
)
SETS = st.sampled_from(
    [Tenants(DIGESTS), Tenants(DIGESTS, "x-tenant", TRUSTED), Tenants(None, "x-tenant", TRUSTED)]
)


@given(SETS, TEXTS, OUTSIDE, TEXTS)
def test_h78_from_outside_only_a_key_makes_a_tenant(
    tenants: Tenants, key: str, peer: Any, named: str
) -> None:
    found = tenants.tenant_of(key, str(peer), named)
    if isinstance(found, Tenant):
        assert tenants.digests is not None
        assert KNOWN[found.name] == key


@given(SETS, st.dictionaries(st.sampled_from(["authorization", "x-api-key", "x-tenant"]), TEXTS))
def test_h86_no_credential_of_a_tenants_leaves_the_router(
    tenants: Tenants, headers: dict[str, str]
) -> None:
    door = Door(tenants, Keys(b"s"), engine_key="")
    with suppress(BadRequest, Unauthorized, Forbidden):
        caller = door.caller(headers, "10.0.0.1")
        assert caller.credentials == {}
        assert caller.owner == Keys(b"s").tenant(caller.tenant)


@given(st.text(st.characters(codec="utf-8"), max_size=50), st.text(max_size=9))
def test_an_authorization_of_any_text_gives_at_most_the_key_in_it(text: str, api_key: str) -> None:
    found: Any = presented_key(text, api_key)
    assert found in (text, api_key) if not text else found in text
