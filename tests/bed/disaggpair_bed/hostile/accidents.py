"""Operations with more than one request, or with a client that leaves."""

from dataclasses import replace

from disaggpair_bed.hostile.choosing import all_ready, continued, ready, turn_with
from disaggpair_bed.hostile.conversation import Conversation, Tokens, drawn, replaced, said
from disaggpair_bed.hostile.stage import Stage
from disaggpair_bed.hostile.turns import Abort, Turn

_AT_ONCE = 6
_IN_A_STORM = 12
"""An engine of the bed runs 8 requests at a time."""


async def burst(stage: Stage) -> bool:
    """Several conversations at once, and some that are new."""
    choices = all_ready(stage)
    turns = [
        turn_with("burst", one, continued(stage, one), handle)
        for one, handle in stage.rng.sample(choices, min(_AT_ONCE - 2, len(choices)))
    ]
    while len(turns) < _AT_ONCE:
        salt = stage.fresh_salt()
        turns.append(Turn("burst", Conversation(salt), drawn(stage.rng, 700), salt))
    await stage.play(*turns)
    return True


async def storm(stage: Stage) -> bool:
    """More conversations at once than an engine runs, of which some are changed or left."""
    turns = []
    for one, handle in all_ready(stage):
        prompt = stage.rng.choice([continued(stage, one), one.prompt, _edited(stage, one)])
        abort: Abort | None = stage.rng.choice([None, None, None, "prefill", "decode"])
        turn = turn_with("storm", one, prompt, handle, variant=f"abort {abort}")
        turns.append(replace(turn, abort=abort))
    while len(turns) < _IN_A_STORM:
        salt = stage.fresh_salt()
        turns.append(Turn("storm", Conversation(salt), drawn(stage.rng, 900), salt))
    await stage.play(*turns[:_IN_A_STORM])
    return True


def _edited(stage: Stage, one: Conversation) -> Tokens:
    return replaced(stage.rng, one.history) + said(stage.rng)


async def twice(stage: Stage) -> bool:
    """One handle in two requests at once."""
    found = ready(stage)
    if found is None:
        return False
    one, handle = found
    turns = [turn_with("twice at once", one, continued(stage, one), handle) for _ in range(2)]
    await stage.play(*turns, usable=max(turn.usable for turn in turns))
    return True


async def leave(stage: Stage) -> bool:
    """The client goes during a leg."""
    found = ready(stage)
    if found is None:
        return False
    one, handle = found
    leg: Abort = stage.rng.choice(["prefill", "decode"])
    turn = turn_with("abort", one, continued(stage, one), handle, variant=leg)
    await stage.play(replace(turn, abort=leg))
    return True


async def siblings(stage: Stage) -> bool:
    """Two answers in one turn, and the next turn with the handle that came back."""
    salt = stage.fresh_salt()
    one = Conversation(salt)
    begin = Turn("two answers", one, drawn(stage.rng, 400), salt, siblings=2)
    await stage.play(begin)
    if one.handle is not None:
        await stage.play(turn_with("two answers", one, continued(stage, one), one.handle))
    return True


async def direct(stage: Stage) -> bool:
    """A turn that is sent to D alone, at times with parameters that say nothing."""
    found = ready(stage)
    if found is None:
        return False
    one, _ = found
    params = stage.rng.choice([None, None, {}, {"conversation": "c"}, {"do_remote_prefill": False}])
    prompt = continued(stage, one)
    await stage.play(
        Turn("direct", one, prompt, one.salt, direct=params, is_direct=True, variant=str(params))
    )
    return True
