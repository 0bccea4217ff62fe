"""Whose request is it? Tenants, known by their API keys or named by a gateway. Pure.

A key is known by its SHA-256 digest only. The digest of the presented key is looked up in a
table, which takes longer the more of a digest agrees; that tells nothing of use, since whoever
learns a digest still needs a key that has it. So keys must be random text, not words: a digest
has neither salt nor cost.

A gateway that has checked its callers itself names the tenant in a header. The header counts only
on connections from the gateway's own addresses; from anybody else it is as if it had not come.
"""

import hashlib
import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

Refusal = Literal["no_key", "unknown_key", "other_tenant", "no_name", "bad_name", "not_the_gateway"]
"""Why a request has no tenant: it shows no key; a key that is not known; the key of another
tenant than the gateway says; the gateway named none, or none that can be; the router serves
nobody but the gateway."""

_NAME: Final = re.compile(r"[A-Za-z0-9._:@/|+=~-]{1,253}")


@dataclass(frozen=True, slots=True)
class Tenant:
    """One who may use the pair, apart from all others."""

    name: str


OPEN: Final = Tenant("")
"""Everybody, where no tenants are configured."""


@dataclass(frozen=True, slots=True)
class Tenants:
    """All tenants of a router."""

    digests: Mapping[bytes, str] | None = None
    """Names by the SHA-256 digests of their keys; None when there are no keys at all, empty when
    no key is good any more."""
    header: str = ""
    """Header in which a gateway names the tenant; empty for none."""
    trusted: Sequence[Network] = ()
    """The gateway's addresses."""

    @property
    def is_open(self) -> bool:
        """Whether no tenants are configured, so that everybody is the open one."""
        return self.digests is None and not self.header

    def with_digests(self, digests: Mapping[bytes, str]) -> "Tenants":
        """The same with other keys."""
        return replace(self, digests=digests)

    def heeds(self, peer: str) -> bool:
        """Whether the gateway's header counts on a connection from this address."""
        return bool(self.header) and _is_within(peer, self.trusted)

    def tenant_of(self, key: str, peer: str, named: str) -> Tenant | Refusal:
        """The tenant of a request, or why it has none.

        `key` is what `presented_key` found, `named` the value of the gateway's header, and `peer`
        the address at the other end of the connection. What the gateway says decides, but not
        against a key of another tenant.
        """
        if self.is_open:
            return OPEN
        owner = self._owner(key)
        if named and self.heeds(peer):
            if not is_name(named):
                return "bad_name"
            return Tenant(named) if owner in (None, named) else "other_tenant"
        if self.digests is None:
            return "no_name" if self.heeds(peer) else "not_the_gateway"
        if owner is not None:
            return Tenant(owner)
        return "unknown_key" if key else "no_key"

    def _owner(self, key: str) -> str | None:
        return (self.digests or {}).get(digest_of(key)) if key else None


def presented_key(authorization: str, api_key: str) -> str:
    """The key in an `Authorization: Bearer` header, else in `x-api-key`; empty without one.

    An Authorization of another scheme is no key, and nothing else is looked for beside it.
    """
    if not authorization:
        return api_key
    scheme, _, key = authorization.partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def digest_of(key: str) -> bytes:
    """The SHA-256 digest by which a key is known."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def is_name(text: str) -> bool:
    """Whether a text can be a tenant's name, fit for files, headers and logs."""
    return _NAME.fullmatch(text) is not None


def networks(blocks: Sequence[str]) -> tuple[Network, ...]:
    """Blocks of addresses from CIDR texts, which have been checked."""
    return tuple(ipaddress.ip_network(block) for block in blocks)


def _is_within(peer: str, trusted: Sequence[Network]) -> bool:
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return False
    # A socket that takes both families shows an IPv4 peer in this form.
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return any((mapped or address) in network for network in trusted)
