"""What operations have in common: which conversation, which handle, and the turn made of them."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, Final

from disaggpair_bed.hostile.conversation import (
    LONGEST,
    Conversation,
    Handle,
    Tokens,
    common_prefix,
    said,
)
from disaggpair_bed.hostile.stage import Stage
from disaggpair_bed.hostile.turns import Turn

MARGIN_S: Final = 6.0
"""A handle with less than this left is late: P declines with 5 s left."""

Choice = tuple[Conversation, Handle]


def left_s(stage: Stage, handle: Handle) -> float:
    """How long D still holds what a handle stands for."""
    return handle.born_s + stage.ttl_s - stage.now_s()


def all_ready(stage: Stage) -> list[Choice]:
    """Conversations that can go on, with the unused handle of their last turn."""
    return [
        (one, one.handle)
        for one in stage.conversations
        if one.handle is not None
        and left_s(stage, one.handle) > MARGIN_S
        and len(one.history) < LONGEST
    ]


def ready(stage: Stage) -> Choice | None:
    """One of them, or None."""
    return chosen(stage, lambda one, handle: handle is one.handle and in_time(stage, handle))


def chosen(stage: Stage, is_wanted: Callable[[Conversation, Handle], bool]) -> Choice | None:
    """A conversation and one of its handles for which that holds, or None."""
    found = [
        (one, handle)
        for one in stage.conversations
        for handle in one.handles
        if len(one.history) < LONGEST and is_wanted(one, handle)
    ]
    return stage.rng.choice(found) if found else None


def in_time(stage: Stage, handle: Handle) -> bool:
    """Whether it is surely not declined for its age."""
    return left_s(stage, handle) > MARGIN_S


def continued(stage: Stage, one: Conversation) -> Tokens:
    """The history and what the user says next."""
    return one.history + said(stage.rng)


def turn_with(
    operation: str,
    one: Conversation,
    prompt: Tokens,
    handle: Handle,
    *,
    usable: int | None = None,
    change: Callable[[Mapping[str, Any]], Any] | None = None,
    variant: str = "",
) -> Turn:
    """A turn with a handle.

    Args:
        operation: what it is counted under.
        one: the conversation.
        prompt: all its tokens.
        handle: it is spent then.
        usable: the most tokens that P may read; None for what the handle holds of the prompt.
        change: makes what is sent of the handle's parameters.
        variant: for the log.
    """
    if usable is None:
        usable = common_prefix(handle.held, prompt) if handle.salt == one.salt else 0
    params: Any = deepcopy(dict(handle.params))
    return Turn(
        operation,
        one,
        prompt,
        one.salt,
        handle=params if change is None else change(params),
        uses=handle,
        usable=usable,
        variant=variant,
    )
