"""What the model "samples": a word-like piece of four bytes, chosen by a digest of all KV."""

import math
from dataclasses import dataclass

from disaggpair_bed.simengine import tokens as vocabulary

_CONSONANTS = "bdfgklmnprstvwzh"
_VOWELS = "aeiouyae"


@dataclass(frozen=True)
class ToyModel:
    """Turns digests into tokens."""

    shortest: int = 12
    longest: int = 40
    """Answers end by themselves after this many tokens, the thinking not counted."""
    thinking: int = 0
    """Tokens of thinking before the answer; 0 for a model that does not think."""
    two_spellings: bool = False
    """Sample pieces that the tokenizer would not choose, so that an answer that is tokenised
    anew differs from what was sampled."""

    def answer_tokens(self, digest: int) -> int:
        """Length of an answer, end token not counted, from the digest of its prompt."""
        length = self.shortest + (digest >> 40) % (self.longest - self.shortest + 1)
        return length + (self.thinking + 2 if self.thinking else 0)

    def sample(self, digest: int, position: int, length: int, *, may_end: bool) -> int:
        """The token at a position of an answer of a natural length."""
        if position >= length and may_end:
            return vocabulary.END_OF_TURN
        if self.thinking and position == 0:
            return vocabulary.THINK_START
        if self.thinking and position == self.thinking + 1:
            return vocabulary.THINK_END
        word = _CONSONANTS[digest & 15] + _VOWELS[digest >> 4 & 7] + _CONSONANTS[digest >> 7 & 15]
        starts_text = position == (self.thinking + 2 if self.thinking else 0)
        word = word.capitalize() + _VOWELS[digest >> 11 & 7] if starts_text else " " + word
        if self.two_spellings:
            word = word[:3]
        return vocabulary.encode(word)[0]


def top_logprobs(sampled: str, value: float, count: int) -> dict[str, float]:
    """The most likely tokens by their text: the sampled one, and others that share the rest."""
    tops, rest = {sampled: value}, 1.0 - math.exp(value)
    for number in range(count - 1):
        rest /= 2
        tops[f" {_CONSONANTS[number % 16]}{number}"] = math.log(max(rest, 1e-30))
    return tops


def logprob(digest: int) -> float:
    """Log probability that goes with a sampled token: between -2 and 0, from the same digest."""
    return -((digest >> 16) & 0xFFFF) / 32768
