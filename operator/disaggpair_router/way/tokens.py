"""How many tokens the new messages of a turn are, without a tokenizer. Pure.

    tokens = characters / ratio + messages * MESSAGE_TOKENS

The ratio of a model is corrected by what its engine counted for past turns.
"""

from collections import OrderedDict
from math import ceil, isfinite

from disaggpair_router.way.fit import Ewma, bounded

CHARACTERS_PER_TOKEN = 4.0
"""The usual rule for English. Code and other scripts have fewer: the ratio follows."""
LOWEST, HIGHEST = 0.5, 16.0
"""Bounds of a ratio: a rare script with three tokens a character, long runs of white space."""
MESSAGE_TOKENS = 4
"""Role and end marks of one message in ChatML, the template of many models."""
SURE_TOKENS = 256
"""From so many tokens on an observation counts in full; in fewer the template's own prevail."""
MAX_MODELS = 64
"""Models whose ratio is kept. The name is the client's, so their number has to have a bound."""
MAX_TOKENS = 10_000_000


class TokenRatios:
    """Characters per token of each model; the least recently observed is forgotten first."""

    def __init__(self) -> None:
        self._ratios: OrderedDict[str, Ewma] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ratios)

    def ratio(self, model: str) -> float:
        """Characters per token of a model."""
        known = self._ratios.get(model)
        return known.value if known else CHARACTERS_PER_TOKEN

    def tokens(self, model: str, characters: int, messages: int = 1) -> int:
        """An estimate from 1 to MAX_TOKENS."""
        count = bounded(characters, 0, 1e9) / self.ratio(model)
        count += bounded(messages, 0, MAX_TOKENS) * MESSAGE_TOKENS
        return max(1, min(ceil(count), MAX_TOKENS))

    def observe(self, model: str, characters: int, tokens: int, messages: int = 1) -> None:
        """What the engine counted: `usage.prompt_tokens`, less the tokens that were held before."""
        text_tokens = tokens - messages * MESSAGE_TOKENS
        if characters <= 0 or text_tokens <= 0 or not isfinite(characters / text_tokens):
            return
        known = self._ratios.setdefault(model, Ewma(CHARACTERS_PER_TOKEN, LOWEST, HIGHEST))
        known.observe(characters / text_tokens, text_tokens / SURE_TOKENS)
        self._ratios.move_to_end(model)
        if len(self._ratios) > MAX_MODELS:
            self._ratios.popitem(last=False)
