"""Token counts of a usage object, whichever API gave it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a turn; None where the engine does not tell."""

    prompt: int | None = None
    """Of the whole prompt, what came from a cache included."""
    answer: int | None = None
    cached: int | None = None

    def total(self, *, default: int) -> int:
        """Tokens of prompt and answer, where both are told."""
        known = self.prompt is not None and self.answer is not None
        return (self.prompt or 0) + (self.answer or 0) if known else default


def usage_of(value: object) -> Usage:
    """What a usage object of any of the APIs says; nothing of another value."""
    if not isinstance(value, Mapping):
        return Usage()
    details = value.get("prompt_tokens_details") or value.get("input_tokens_details")
    from_cache = value.get("cache_read_input_tokens")
    into_cache = value.get("cache_creation_input_tokens")
    prompt = _count(value, "prompt_tokens", "input_tokens")
    if prompt is not None and "prompt_tokens" not in value:
        # The messages API counts these apart.
        prompt += sum(count for count in (from_cache, into_cache) if isinstance(count, int))
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else from_cache
    return Usage(
        prompt,
        _count(value, "completion_tokens", "output_tokens"),
        cached if isinstance(cached, int) else None,
    )


def _count(value: Mapping[str, Any], *keys: str) -> int | None:
    found = (value.get(key) for key in keys)
    return next((count for count in found if isinstance(count, int)), None)
