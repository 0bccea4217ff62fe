"""Operations of a router that lists and claims leases; of our connector only."""

from typing import Literal

from disaggpair_bed.hostile.choosing import Choice, continued, ready, turn_with
from disaggpair_bed.hostile.stage import Stage
from disaggpair_bed.hostile.turns import Turn
from disaggpair_connector import contract


async def claimed(stage: Stage) -> bool:
    """The next turn with a lease that was claimed, as for an answer that was streamed."""
    found, params = await _claim(stage, "read")
    if found is None:
        return False
    one, handle = found
    prompt = continued(stage, one)
    await stage.play(turn_with("claimed", one, prompt, handle, change=lambda _: params))
    return True


async def overtaken(stage: Stage) -> bool:
    """A lease is claimed, and then its first handle is used."""
    found, _ = await _claim(stage, "read")
    if found is None:
        return False
    one, handle = found
    prompt = continued(stage, one)
    await stage.play(turn_with("claimed by another", one, prompt, handle, usable=0))
    return True


async def claimed_direct(stage: Stage) -> bool:
    """The next turn goes to D alone, with its lease."""
    found, params = await _claim(stage, "direct")
    if found is None:
        return False
    one, handle = found
    handle.spent = True
    prompt = continued(stage, one)
    await stage.play(Turn("claimed, direct", one, prompt, one.salt, direct=params, is_direct=True))
    return True


async def _claim(stage: Stage, purpose: Literal["read", "direct"]) -> tuple[Choice | None, object]:
    """A conversation whose lease is still there, and the parameters of the claim."""
    found = ready(stage)
    if stage.leases is None or found is None:
        return None, None
    ours = found[1].params[contract.PAIR_PARAMS]
    params = await stage.leases.claim(ours["lease"], purpose)
    # Else it was given up for somebody's need.
    return (found, params) if isinstance(params, dict) else (None, None)
