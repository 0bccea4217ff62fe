"""Digests of the tokens that a request has, made and compared by the connector's own code."""

from array import array

from disaggpair_bed.simengine.job import Request
from disaggpair_connector.digest import Digests, common_prefix, digests_of
from disaggpair_connector.identity import identity_of

_FOLD = 0x9E3779B1


def digests(request: Request, count: int) -> Digests:
    """Digests of the first `count` tokens of a request."""
    return digests_of(folded(request.tokens[:count]), count, identity_of(request))


def held_by(request: Request, held: Digests) -> int:
    """How many leading tokens of a prompt are proven to be among those held elsewhere."""
    mine = digests(request, min(request.prompt_tokens, held.tokens))
    return common_prefix(mine, held)


def folded(tokens: "array[int]") -> "array[int]":
    """Tokens in 32 bits, as a model's are.

    Pieces of four bytes stay what they are. Shorter ones and special tokens become numbers that are
    no UTF-8, so that they meet none of these.
    """
    words = memoryview(tokens.tobytes()).cast("I")
    low, high = words[0::2].tolist(), words[1::2].tolist()
    if not any(high):
        return array("I", low)
    pairs = zip(low, high, strict=True)
    return array("I", [(one ^ other * _FOLD) & 0xFFFFFFFF for one, other in pairs])
