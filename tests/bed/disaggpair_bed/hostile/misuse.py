"""Operations on the handle: the wrong one, an old one, a changed one."""

from dataclasses import replace

from disaggpair_bed.hostile import malformed
from disaggpair_bed.hostile.choosing import (
    chosen,
    continued,
    in_time,
    left_s,
    ready,
    turn_with,
)
from disaggpair_bed.hostile.conversation import Conversation, drawn, said
from disaggpair_bed.hostile.stage import Stage, first_turn
from disaggpair_bed.hostile.turns import Turn


async def swap(stage: Stage) -> bool:
    """The handle of another conversation."""
    found = ready(stage)
    other = chosen(stage, lambda one, handle: handle is one.handle and found != (one, handle))
    if found is None or other is None:
        return False
    prompt = continued(stage, found[0])
    await stage.play(turn_with("swap", found[0], prompt, other[1]))
    return True


async def reuse(stage: Stage) -> bool:
    """A handle that was used before."""
    found = chosen(stage, lambda _, handle: handle.used)
    if found is None:
        return False
    one, handle = found
    prompt = stage.rng.choice([one.history, handle.held]) + said(stage.rng)
    await stage.play(turn_with("reuse", one, prompt, handle, usable=0))
    return True


async def stale(stage: Stage) -> bool:
    """The handle of an earlier turn that nobody used."""
    found = chosen(
        stage,
        lambda one, handle: (
            handle is not one.handle and not handle.spent and in_time(stage, handle)
        ),
    )
    if found is None:
        return False
    one, handle = found
    await stage.play(turn_with("stale", one, continued(stage, one), handle))
    return True


async def expired(stage: Stage) -> bool:
    """A handle whose time is over or nearly so."""
    found = chosen(stage, lambda _, handle: not handle.spent and not in_time(stage, handle))
    if found is None:
        return False
    one, handle = found
    rest_s = left_s(stage, handle)
    # In its last seconds it may be used or declined.
    usable = None if rest_s > 0 else 0
    variant = f"{rest_s:.1f} s left"
    turn = turn_with("expired", one, continued(stage, one), handle, usable=usable, variant=variant)
    await stage.play(turn)
    return True


async def other_salt(stage: Stage) -> bool:
    """The right tokens for another tenant."""
    found = ready(stage)
    if found is None:
        return False
    one, handle = found
    turn = turn_with("other salt", one, continued(stage, one), handle, usable=0)
    await stage.play(replace(turn, salt=stage.fresh_salt()))
    return True


async def to_prefill(stage: Stage) -> bool:
    """A handle that is malformed in a way that is known to do harm, or might."""
    found = ready(stage)
    if found is None:
        return False
    one, handle = found
    name = stage.deck(list(malformed.TO_PREFILL))
    change = malformed.TO_PREFILL[name]
    prompt = continued(stage, one)
    await stage.play(
        turn_with("malformed handle", one, prompt, handle, change=change, variant=name)
    )
    return True


async def to_decode(stage: Stage) -> bool:
    """P's answer is malformed on its way to D."""
    salt = stage.fresh_salt()
    prompt = drawn(stage.rng, stage.rng.choice([90, 400, 900]))
    name = stage.deck(list(malformed.TO_DECODE))
    turn = Turn("malformed offer", Conversation(salt), prompt, salt, variant=name)
    await stage.play(replace(turn, change_offer=malformed.TO_DECODE[name]))
    return True


async def crossed(stage: Stage) -> bool:
    """P's answer goes back to P, and D's handle back to D."""
    found = ready(stage)
    if found is None:
        return False
    one, handle = found
    prompt = continued(stage, one)
    if stage.rng.random() < 0.5:
        salt = stage.fresh_salt()
        before = drawn(stage.rng, 400)
        p_leg = await stage.p.complete(before, 1, params=first_turn(one), salt=salt)
        turn = Turn("crossed", Conversation(salt), before + said(stage.rng), salt)
        await stage.play(replace(turn, handle=p_leg.params, variant="P's to P"))
    else:
        turn = turn_with("crossed", one, prompt, handle, variant="D's to D")
        await stage.play(replace(turn, change_offer=lambda _: dict(handle.params)))
    return True


async def fuzz(stage: Stage) -> bool:
    """Random values in the handle or in P's answer."""
    found = ready(stage)
    if found is None:
        return False
    one, handle = found
    prompt = continued(stage, one)
    if stage.rng.random() < 0.5:
        turn = turn_with(
            "fuzz", one, prompt, handle, change=lambda it: malformed.fuzzed(stage.rng, it)
        )
        changed = turn.handle
        await stage.play(replace(turn, variant=f"handle {_differences(handle.params, changed)}"))
    else:
        turn = turn_with("fuzz", one, prompt, handle, variant="offer")
        await stage.play(replace(turn, change_offer=lambda it: malformed.fuzzed(stage.rng, it)))
    return True


def _differences(params: object, changed: object) -> str:
    if not isinstance(params, dict) or not isinstance(changed, dict):
        return repr(changed)[:80]
    different = {
        key: changed.get(key, "gone")
        for key in {*params, *changed}
        if params.get(key) != changed.get(key) or (key in params) != (key in changed)
    }
    return repr(different)[:160]
