"""Which engines serve a turn: filter, score, pick. Pure; called by `turn` once per attempt."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

Role = Literal["prefill", "decode"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One engine as the router sees it at one moment."""

    name: str
    """Identity that outlives a restart: a pod's UID, or the URL of a static endpoint."""
    url: str
    role: Role
    ready: bool
    incarnation: str = ""
    """Changes when the engine's process does: its memory, and every handle, is then gone."""
    revision: str = ""
    zone: str = ""
    """Empty when it is not known."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Engines for one turn. Without prefill the other one serves the turn alone."""

    prefill: Endpoint | None
    decode: Endpoint

    @property
    def is_pair(self) -> bool:
        """Whether the turn runs in two legs."""
        return self.prefill is not None


def may_pair(prefill: Endpoint, decode: Endpoint) -> bool:
    """Whether KV can move between two engines.

    Engines of different revisions refuse each other's handshake, and EFA does not cross zones.
    """
    same_zone = not prefill.zone or not decode.zone or prefill.zone == decode.zone
    return same_zone and prefill.revision == decode.revision


def pick(
    endpoints: Collection[Endpoint],
    in_flight: Mapping[str, int],
    *,
    revision: str = "",
    holder: str = "",
    max_imbalance: int | None = None,
    avoid: Collection[str] = (),
    single: bool = False,
) -> Choice | None:
    """The least busy pair, with the decode engine `holder` if it can be had.

    The holder is passed over when it has more than `max_imbalance` legs more than the least busy
    other decode engine: P reads from it wherever the turn is decoded. None: never.

    Without any pair, or when `single` asks for it, one engine: a decode engine if one is ready,
    else a prefill engine, which can answer alone too. Engines in `avoid` are taken only when
    there is no other. None when nothing is ready.
    """
    usable = [
        endpoint
        for endpoint in endpoints
        if endpoint.ready and (not revision or endpoint.revision == revision)
    ]

    if max_imbalance is not None and _excess(usable, in_flight, holder, avoid) > max_imbalance:
        holder = ""

    def cost(endpoint: Endpoint) -> tuple[bool, bool, int, str]:
        return (
            endpoint.name in avoid,
            endpoint.role == "decode" and endpoint.name != holder,
            in_flight.get(endpoint.name, 0),
            endpoint.name,
        )

    prefills = sorted((e for e in usable if e.role == "prefill"), key=cost)
    decodes = sorted((e for e in usable if e.role == "decode"), key=cost)
    if not single:
        for decode in decodes:
            for prefill in prefills:
                if may_pair(prefill, decode):
                    return Choice(prefill, decode)
    for alone in (*decodes, *prefills):
        return Choice(None, alone)
    return None


def _excess(
    usable: Collection[Endpoint],
    in_flight: Mapping[str, int],
    holder: str,
    avoid: Collection[str],
) -> int:
    """Legs at the holder beyond those at the least busy other decode engine; 0 without one."""
    others = [
        in_flight.get(endpoint.name, 0)
        for endpoint in usable
        if endpoint.role == "decode" and endpoint.name != holder and endpoint.name not in avoid
    ]
    return in_flight.get(holder, 0) - min(others) if others else 0
