"""All operations, and how often each is drawn.

An operation plays its turns on a stage and returns True, or returns False because no conversation
is in the state that it needs.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from disaggpair_bed.hostile import accidents, claims, histories, misuse
from disaggpair_bed.hostile.stage import Stage

Operation = Callable[[Stage], Awaitable[bool]]

WEIGHTS: Final[Mapping[Operation, int]] = {
    histories.first: 4,
    histories.go_on: 16,
    histories.edit: 11,
    histories.truncate: 5,
    histories.regenerate: 7,
    histories.shorten: 5,
    histories.strip: 5,
    misuse.swap: 5,
    misuse.reuse: 6,
    misuse.stale: 4,
    misuse.expired: 5,
    misuse.other_salt: 4,
    misuse.to_prefill: 7,
    misuse.to_decode: 5,
    misuse.fuzz: 4,
    misuse.crossed: 2,
    accidents.burst: 1,
    accidents.storm: 1,
    accidents.twice: 2,
    accidents.leave: 3,
    accidents.siblings: 1,
    accidents.direct: 4,
    claims.claimed: 4,
    claims.overtaken: 2,
    claims.claimed_direct: 4,
}
"""Of about a hundred."""


async def play(stage: Stage, turns: int) -> None:
    """Draw operations and play them until at least so many turns are counted."""
    while stage.record.turns < turns:
        (operation,) = stage.rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
        if not await operation(stage) and not await histories.go_on(stage):
            await histories.first(stage)
