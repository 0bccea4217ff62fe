"""The requests of a check, and what is read out of their answers. Pure.

Both are the turn's own request for one token, without transfer parameters. With the client's own
salt the engine takes the prompt from its prefix cache, which is where the turn's KV is; with a
salt that nobody had it computes all of it.
"""

from collections.abc import Mapping
from math import isfinite
from typing import Any, Final

import orjson

from disaggpair_connector.contract import KV_TRANSFER_PARAMS
from disaggpair_router.guard.compare import FirstToken
from disaggpair_router.kv import Api, Json, prefill_body
from disaggpair_router.usage import usage_of

TOLD: Final = 20
"""Tokens whose probabilities are asked for: the most that vLLM tells by default."""

_ASKS: Final[Mapping[Api, Json]] = {
    # Token ids: several tokens may have the same text.
    "chat": {"logprobs": True, "top_logprobs": TOLD, "return_tokens_as_token_ids": True},
    "completions": {"logprobs": TOLD, "return_tokens_as_token_ids": True},
}


def can_be_asked(api: Api) -> bool:
    """Whether an API tells probabilities of tokens."""
    return api in _ASKS


def question(api: Api, body: Mapping[str, Any], *, salt: str = "") -> Json:
    """The body of one request; with a salt the prompt is computed from nothing."""
    # Without chance no unlikely token takes the place of one that is to be told of.
    asked = {**prefill_body(api, body), **_ASKS[api], "temperature": 0}
    del asked[KV_TRANSFER_PARAMS]
    return {**asked, "cache_salt": salt} if salt else asked


def first_token(api: Api, raw: bytes) -> FirstToken | None:
    """What the answer says; None when it lacks the probabilities."""
    try:
        answer = orjson.loads(raw)
        logprobs = answer["choices"][0]["logprobs"]
        if api == "chat":
            tops = {one["token"]: one["logprob"] for one in logprobs["content"][0]["top_logprobs"]}
        else:
            tops = dict(logprobs["top_logprobs"][0])
        found = {
            str(token): float(value)
            for token, value in tops.items()
            if value is not None and isfinite(value)
        }
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
    return FirstToken(found, usage_of(answer.get("usage")).cached) if found else None
