"""Who may use a pair, and whose conversations are kept apart. Pure."""

import re
from ipaddress import ip_network
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from disaggpair_operator.api.rules import Part, Rule, given
from disaggpair_operator.api.v1alpha1.fields import SecretRef

_OCTET: Final = "(0|[1-9][0-9]{0,2})"
_IPV4: Final = rf"{_OCTET}(\.{_OCTET}){{3}}"
_IPV6: Final = "([0-9a-fA-F]{0,4}:){2,8}[0-9a-fA-F]{0,4}"
_LENGTH: Final = "([1-9][0-9]?|1[01][0-9]|12[0-8])"
"""Length of a prefix; not 0, which would be everybody."""

_NETWORK: Final = f"({_IPV4}|{_IPV6})/{_LENGTH}"
_ARE_NETWORKS: Final = (
    "must be networks such as 10.0.0.0/8 or fd00::/8, or single addresses such as 10.0.0.7/32, "
    "and none of length 0, which would be everybody"
)

TAKEN_HEADERS: Final = (
    "authorization",
    "traceparent",
    "tracestate",
    "x-api-key",
    "x-conversation-id",
    "x-request-id",
    "x-session-id",
)
"""Headers that mean something else to the router, in lower case."""

_HEADER: Final = given("self.tenantHeader", "")


def _is_network(text: str) -> str:
    """Refuse what the API server's format `cidr` refuses."""
    try:
        ip_network(text, strict=False)
    except ValueError as error:
        raise ValueError(f"is {text}, but must be a network such as 10.0.0.0/8") from error
    return text


Network = Annotated[
    str,
    Field(
        min_length=4,
        max_length=43,
        json_schema_extra={"format": "cidr"},
    ),
    AfterValidator(_is_network),
]


def _odd(networks: list[str]) -> list[str]:
    """Those that are every address, or are not written as the API server's rule has them."""
    return [network for network in networks if not re.fullmatch(_NETWORK, network)]


class Auth(Part):
    """Who may use the pair. Tenants do not find one another's conversations."""

    api_keys_secret_ref: SecretRef | None = None
    """Secret with an entry for each tenant: its key is the tenant's name, its value the SHA-256
    digests of the tenant's API keys in hexadecimal, one on a line. Clients send an API key as
    `Authorization: Bearer KEY` or in `x-api-key`."""
    trusted_proxies: Annotated[list[Network], Field(max_length=64)] = []
    """Addresses of a gateway that knows its callers and names the tenant in `tenantHeader`."""
    tenant_header: Annotated[str, Field(max_length=64, pattern="^$|^[A-Za-z][-A-Za-z0-9]*$")] = ""
    """Header with the tenant's name. It counts on connections from `trustedProxies` alone."""

    rules = (
        Rule(
            cel=(
                "!has(self.trustedProxies) || "
                f"self.trustedProxies.all(n, n.matches(r'^{_NETWORK}$'))"
            ),
            message=f"spec.router.auth.trustedProxies {_ARE_NETWORKS}",
            check=lambda self: not _odd(self.trusted_proxies),
            explain=lambda self: (
                f"spec.router.auth.trustedProxies has {_odd(self.trusted_proxies)[0]}, but they "
                f"{_ARE_NETWORKS}"
            ),
            field_path=".trustedProxies",
        ),
        Rule(
            cel=f"has(self.apiKeysSecretRef) || {_HEADER} != ''",
            message="spec.router.auth needs apiKeysSecretRef or tenantHeader",
            check=lambda self: self.api_keys_secret_ref is not None or bool(self.tenant_header),
        ),
        Rule(
            cel=(
                f"({_HEADER} != '') == (has(self.trustedProxies) && self.trustedProxies.size() > 0)"
            ),
            message=(
                "spec.router.auth needs tenantHeader and trustedProxies together: the header "
                "counts on connections from these addresses alone"
            ),
            check=lambda self: bool(self.tenant_header) == bool(self.trusted_proxies),
        ),
        Rule(
            cel=f"!({_HEADER}.lowerAscii() in [{', '.join(map(repr, TAKEN_HEADERS))}])",
            message=(
                f"spec.router.auth.tenantHeader must not be {', '.join(TAKEN_HEADERS[:-1])} or "
                f"{TAKEN_HEADERS[-1]}: these mean something else"
            ),
            check=lambda self: self.tenant_header.lower() not in TAKEN_HEADERS,
            field_path=".tenantHeader",
        ),
    )
