"""Which way a turn takes: FULL, PULL or DIRECT. Pure; called by `turn` once the lease is known.

FULL: P computes the whole prompt, D reads it. PULL: P reads the history from D and computes the new
tokens, D reads those. DIRECT: D, whose claimed lease keeps the history in its own cache, computes
the new tokens itself. Among the ways that are possible and allowed, the one with the earliest first
token.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from disaggpair_router.way.backlog import IDLE, Load
from disaggpair_router.way.config import WayConfig
from disaggpair_router.way.rates import Rates
from disaggpair_router.way.tokens import MAX_TOKENS

Way = Literal["FULL", "PULL", "DIRECT"]

Reason = Literal[
    "no_lease",
    "short_history",
    "few_new_tokens",
    "many_new_tokens",
    "prefill_busy",
    "decode_busy",
    "gap_budget",
    "direct_off",
    "kept",
    "forced",
]
"""Why this way; a metric's label and part of the turn's line.

`no_lease`: FULL, since nothing can be read. `short_history`: FULL, since reading costs more than it
saves. `few_new_tokens`: DIRECT is the fastest. `prefill_busy`: DIRECT, only because P has work.
`many_new_tokens`: PULL is the fastest, or the turn is over `max_new_tokens`. `decode_busy`: PULL,
only because D has prefill work. `gap_budget`: DIRECT would be faster, at the cost of D's streams.
`direct_off`: DIRECT would be faster and is switched off. `kept`: the way of the last turn, as
another is not faster by enough. `forced`: asked for.
"""


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn as far as its way depends on it."""

    new: int
    """Estimate of the tokens that the lease does not hold; the whole prompt without a lease."""
    held: int | None = None
    """Tokens of the history that a claimable lease holds; None without one."""
    last: Way | None = None
    """The way of the conversation's last turn."""
    forced: Way | None = None
    """A way asked for, for comparisons and tests. It is taken if it is possible, whatever it costs;
    if not, the choice is made as usual."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The way of a turn. Its `way` is the next turn's `last`."""

    way: Way
    reason: Reason
    seconds: Mapping[Way, float]
    """Estimated time to the first token of each way that is possible, allowed or not."""
    gap_s: float | None = None
    """Estimated gap of D's streams under DIRECT; None where DIRECT is not possible."""
    denied: Way | None = None
    """A way that was asked for and is not possible."""


def choose(
    turn: Turn, rates: Rates, config: WayConfig, *, prefill: Load = IDLE, decode: Load = IDLE
) -> Decision:
    """The way of one turn, with the load of the P and of the D that would serve it."""
    held = min(max(0, turn.held or 0), MAX_TOKENS)
    new = min(max(1, turn.new), MAX_TOKENS)
    seconds: dict[Way, float] = {"FULL": rates.full_s(held, new, prefill)}
    if held >= config.min_pull_tokens:
        seconds["PULL"] = rates.pull_s(held, new, prefill)
    gap_s = None
    if held:
        seconds["DIRECT"] = rates.direct_s(held, new, decode)
        gap_s = rates.gap_s(held, new, decode)
    barred = _barred(new, gap_s, config)
    denied = None
    if turn.forced:
        if turn.forced in seconds and not (turn.forced == "DIRECT" and barred == "direct_off"):
            return Decision(turn.forced, "forced", seconds, gap_s)
        denied = turn.forced
    allowed = [way for way in seconds if way != "DIRECT" or not barred]
    fastest = min(allowed, key=seconds.__getitem__)
    waits: Mapping[Way, float] = {
        way: decode.ahead_s if way == "DIRECT" else prefill.ahead_s for way in seconds
    }
    # Not a part of the wait: where ways share a long one, any would be near enough.
    slack_s = config.hysteresis * min(seconds[way] - waits[way] for way in allowed)
    last = turn.last
    if last in allowed and last != fastest and seconds[last] <= seconds[fastest] + slack_s:
        return Decision(last, "kept", seconds, gap_s, denied)
    reason = _reason(fastest, seconds, barred, prefill, decode)
    return Decision(fastest, reason, seconds, gap_s, denied)


def _barred(new: int, gap_s: float | None, config: WayConfig) -> Reason | None:
    """Why DIRECT is not allowed although it is possible."""
    if not config.direct:
        return "direct_off"
    if new > config.max_new_tokens:
        return "many_new_tokens"
    return "gap_budget" if gap_s is not None and gap_s > config.gap_budget_s else None


def _reason(
    way: Way, seconds: Mapping[Way, float], barred: Reason | None, prefill: Load, decode: Load
) -> Reason:
    """What made the fastest way the fastest."""
    if len(seconds) == 1:
        return "no_lease"
    direct_s = seconds["DIRECT"]
    two_legs_s = min(seconds[other] for other in seconds if other != "DIRECT")
    if way == "DIRECT":
        return "prefill_busy" if two_legs_s - prefill.ahead_s < direct_s else "few_new_tokens"
    if barred and direct_s < two_legs_s:
        return barred
    if direct_s - decode.ahead_s < two_legs_s:
        return "decode_busy"
    return "short_history" if way == "FULL" else "many_new_tokens"
