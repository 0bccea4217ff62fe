"""What vLLM does not check: who may read which KV, and whether it was the right one.

Every set of parameters that an engine returns is recorded with what became of it. A read that
was unsafe is a *violation*, whatever the engine answered. A test ends with `violations == []`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from disaggpair_bed.simengine.identity import NOBODY, Identity, violation_of

State = Literal["live", "leaked", "consumed", "released", "expired", "reclaimed"]

_UNSAFE = {
    "consumed": "second_use",
    "released": "use_after_release",
    "expired": "use_after_expiry",
    "reclaimed": "use_after_reclaim",
}


@dataclass
class Handle:
    """Parameters that this engine returned, and what became of the blocks behind them."""

    request_id: str
    role: str
    tokens: int
    blocks: tuple[int, ...]
    identity: Identity = NOBODY
    state: State = "live"
    is_lost: bool = False
    """The engine slept since: there is nothing in the blocks any more."""


@dataclass(frozen=True)
class Violation:
    """Something that must never happen behind a correct router."""

    kind: str
    request_id: str
    detail: str = ""


@dataclass
class Oracle:
    """Records for one engine; does nothing while `enabled` is False."""

    enabled: bool = False
    handles: dict[str, Handle] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)

    def given(
        self,
        request_id: str,
        role: str,
        tokens: int,
        blocks: Sequence[int],
        *,
        leaked: bool,
        identity: Identity,
    ) -> None:
        """The engine pinned blocks and returned parameters for them."""
        if self.enabled:
            state: State = "leaked" if leaked else "live"
            made = Handle(request_id, role, tokens, tuple(blocks), identity, state)
            self.handles[request_id] = made

    def ended(self, request_id: str, state: State) -> None:
        """The blocks behind a handle were freed."""
        handle = self.handles.get(request_id)
        if handle is not None:
            handle.state = state

    def lost(self) -> None:
        """The KV of every handle is gone, although the engine still keeps its blocks."""
        for handle in self.handles.values():
            if handle.state in ("live", "leaked"):
                handle.is_lost = True

    def read(self, request_id: str, blocks: Sequence[int], reader: Identity) -> None:
        """A peer reads blocks of this engine."""
        if not self.enabled:
            return
        handle = self.handles.get(request_id)
        if handle is None:
            self.violation("unknown_handle", request_id)
        elif kind := _UNSAFE.get(handle.state):
            self.violation(kind, request_id)
        elif foreign := sorted(set(blocks) - set(handle.blocks)):
            self.violation("foreign_blocks", request_id, f"blocks {foreign}")
        elif handle.is_lost:
            self.violation("use_after_sleep", request_id)
        elif kind := violation_of(reader, handle.identity):
            self.violation(kind, request_id)

    def continued(self, request_id: str, by: Identity) -> None:
        """A turn for this engine alone goes on from a lease of it."""
        handle = self.handles.get(request_id)
        if handle is not None and (kind := violation_of(by, handle.identity)):
            self.violation(kind, request_id)

    def violation(self, kind: str, request_id: str, detail: str = "") -> None:
        """Record something that must never happen."""
        if self.enabled:
            self.violations.append(Violation(kind, request_id, detail))

    def count(self, state: State, role: str | None = None) -> int:
        """Handles in a state, of one role or of both."""
        return sum(
            1
            for handle in self.handles.values()
            if handle.state == state and role in (None, handle.role)
        )


def report(oracles: Sequence[Oracle]) -> dict[str, Any]:
    """The records of some engines together, as JSON values."""
    states: tuple[State, ...] = get_args(State)

    def counts(role: str | None = None) -> dict[State, int]:
        return {state: sum(one.count(state, role) for one in oracles) for state in states}

    return {
        "handles": counts(),
        "by_role": {role: counts(role) for role in ("prefill", "decode")},
        "live": [
            {"request_id": handle.request_id, "role": handle.role, "tokens": handle.tokens}
            for one in oracles
            for handle in one.handles.values()
            if handle.state == "live"
        ],
        "violations": [
            {"kind": item.kind, "request_id": item.request_id, "detail": item.detail}
            for one in oracles
            for item in one.violations
        ],
    }
