"""Who may come in, and as whom. What of a caller's headers reaches the engines is decided here.

`app` asks before it reads a body. No HTTP here: headers come as a mapping, in which one that was
sent twice has two items.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from disaggpair_router.conversation import Keys
from disaggpair_router.errors import BadRequest, Forbidden, RouterError, Unauthorized
from disaggpair_router.tenants import Refusal, Tenant, Tenants, presented_key

Refused = Refusal | Literal["bad_header", "overloaded"]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request."""

    tenant: str = ""
    """The tenant's name; empty where there are no tenants."""
    owner: bytes = b""
    """Whose conversations it may continue."""
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Headers that speak for it at the engines."""


class Door:
    """Tells callers apart. `tenants` may be replaced at any time.

    `refused` is called with the reason of each refusal.
    """

    def __init__(
        self,
        tenants: Tenants,
        keys: Keys,
        *,
        engine_key: str,
        refused: Callable[[Refused], object] = lambda _why: None,
    ) -> None:
        self.tenants = tenants
        self._keys = keys
        self._engine_key = engine_key
        self._refused = refused

    def caller(self, headers: Mapping[str, str], peer: str) -> Caller:
        """The caller of a request from the address `peer`.

        Raises Unauthorized, Forbidden, or BadRequest when a header that decides came twice or
        holds what no key can hold.
        """
        try:
            return self._caller(headers, peer)
        except BadRequest:
            self._refused("bad_header")
            raise

    def refuse(self, why: Refused) -> None:
        """Count a refusal for a reason that is not the caller's."""
        self._refused(why)

    def _caller(self, headers: Mapping[str, str], peer: str) -> Caller:
        tenants = self.tenants
        names = ["Authorization", "X-Api-Key"]
        if tenants.heeds(peer):
            names.append(tenants.header)
        authorization, api_key, named = (*_single(headers, names), "")[:3]
        found = tenants.tenant_of(presented_key(authorization, api_key), peer, named)
        if not isinstance(found, Tenant):
            self._refused(found)
            raise _refused(found)
        if tenants.is_open:
            owner = self._keys.caller(authorization, api_key)
        else:
            owner = self._keys.tenant(found.name)
        # Engines know no X-Api-Key, which is how clients of the messages API send a key.
        shown = authorization or (f"Bearer {api_key}" if api_key else "")
        return Caller(found.name, owner, self._credentials(shown, tenants))

    def _credentials(self, authorization: str, tenants: Tenants) -> dict[str, str]:
        """A tenant's key is the router's to check and stays here."""
        if self._engine_key:
            return {"authorization": f"Bearer {self._engine_key}"}
        return {"authorization": authorization} if authorization and tenants.is_open else {}


_REFUSALS: Final[Mapping[Refusal, tuple[type[RouterError], str]]] = {
    "no_key": (Unauthorized, "Give your API key as Authorization: Bearer KEY."),
    "unknown_key": (Unauthorized, "This API key is not known."),
    "other_tenant": (Forbidden, "The API key belongs to another tenant than the gateway says."),
    "no_name": (Forbidden, "The gateway named no tenant."),
    "bad_name": (Forbidden, "The gateway's name for the tenant cannot be one."),
    "not_the_gateway": (Forbidden, "Only the gateway may ask this router."),
}


def _refused(why: Refusal) -> RouterError:
    kind, message = _REFUSALS[why]
    return kind(message)


def _single(headers: Mapping[str, str], names: Sequence[str]) -> list[str]:
    """The value of each header, empty where it was not sent."""
    found: dict[str, list[str]] = {name.lower(): [] for name in names}
    for key, value in headers.items():
        values = found.get(key.lower())
        if values is not None:
            values.append(value)
    return [_only(name, found[name.lower()]) for name in names]


def _only(name: str, values: Sequence[str]) -> str:
    if len(values) > 1:
        raise BadRequest(f"The header {name} was sent {len(values)} times.")
    value = values[0] if values else ""
    if not (value.isascii() and value.isprintable()):
        raise BadRequest(f"The header {name} may hold printable ASCII characters only.")
    return value
