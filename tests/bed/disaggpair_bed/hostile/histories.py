"""Operations on the history: what clients do to it between two turns."""

from collections.abc import Callable

from disaggpair_bed.hostile.choosing import continued, ready, turn_with
from disaggpair_bed.hostile.conversation import (
    Conversation,
    Tokens,
    deleted,
    drawn,
    inserted,
    replaced,
    said,
)
from disaggpair_bed.hostile.stage import Stage
from disaggpair_bed.hostile.turns import Turn


async def first(stage: Stage) -> bool:
    """A new conversation."""
    prompt = drawn(stage.rng, stage.rng.choice([70, 130, 300, 600, 900, 1200]))
    salt = stage.fresh_salt()
    await stage.play(Turn("first", Conversation(salt), prompt, salt))
    return True


async def go_on(stage: Stage) -> bool:
    """The next turn, as it should be."""
    return await _next(stage, "continue", lambda one: continued(stage, one))


async def edit(stage: Stage) -> bool:
    """A part of the history is another."""
    change = stage.rng.choice([replaced, replaced, inserted, deleted])
    return await _next(
        stage,
        "edit",
        lambda one: change(stage.rng, one.history) + said(stage.rng),
        variant=change.__name__,
    )


async def truncate(stage: Stage) -> bool:
    """The history lost its beginning, as when a client keeps a window."""

    def window(one: Conversation) -> Tokens:
        kept = stage.rng.randrange(len(one.history) // 4, len(one.history))
        return one.history[-kept:] + said(stage.rng)

    return await _next(stage, "truncate", window)


async def regenerate(stage: Stage) -> bool:
    """The last answer is asked for again: the prompt is shorter than what D holds."""
    return await _next(stage, "regenerate", lambda one: one.prompt)


async def shorten(stage: Stage) -> bool:
    """The conversation goes back to an earlier point."""

    def cut(one: Conversation) -> Tokens:
        kept = one.history[: stage.rng.randrange(len(one.history) // 4, len(one.history))]
        return kept + drawn(stage.rng, stage.rng.choice([0, 0, 1, 40]))

    return await _next(stage, "shorten", cut)


async def strip(stage: Stage) -> bool:
    """The answer's first part is gone, as a reasoning part is."""

    def stripped(one: Conversation) -> Tokens:
        answer = one.history[len(one.prompt) :]
        kept = answer[stage.rng.randrange(1, len(answer)) :]
        return one.prompt + kept + said(stage.rng)

    return await _next(stage, "strip", stripped)


async def _next(
    stage: Stage, operation: str, prompt: Callable[[Conversation], Tokens], variant: str = ""
) -> bool:
    """Play a turn of a conversation with its own handle."""
    found = ready(stage)
    if found is None:
        return False
    one, handle = found
    await stage.play(turn_with(operation, one, prompt(one), handle, variant=variant))
    return True
