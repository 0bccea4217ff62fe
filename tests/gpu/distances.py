"""How far first tokens are apart: from the KV that a turn left, from nothing, and of wrong KV.

The same questions and the same distance as the router's guard, whose tolerance they are to judge.
"""
# ruff: noqa: T201 - it prints its tables

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

import aiohttp
from front import Engines, Router
from mixed import at
from talk import Talk, begin, say

from disaggpair_router.guard.compare import FirstToken, distance
from disaggpair_router.guard.questions import TOLD, first_token, question

_PATIENCE_S: Final = 30.0
_BLOCK: Final = 256
_WORD_LETTERS: Final = 4
"""With the blank after it."""


async def told(
    client: aiohttp.ClientSession, url: str, body: Mapping[str, Any], *, fresh: bool
) -> FirstToken:
    """An engine's first token, from its cache or from nothing."""
    asked = question("chat", body, salt=secrets.token_urlsafe() if fresh else "")
    async with client.post(f"{url}/v1/chat/completions", json=asked) as reply:
        found = first_token("chat", await reply.read())
    if found is None:
        raise RuntimeError(f"{url} told no probabilities")
    return found


async def checked(router: Router, before: float) -> None:
    """Wait until the router's own guard has an opinion of the last turn."""
    for _ in range(int(_PATIENCE_S / 0.1)):
        if await asyncio.to_thread(router.samples, "guard_checks_total") > before:
            return
        await asyncio.sleep(0.1)


async def sample(
    router: Router, plain: Router, engines: Engines, talk: Talk, new: int, way: str
) -> dict[str, Any]:
    """One turn, checked by the router's guard and then by hand."""
    async with aiohttp.ClientSession() as client:
        await begin(client, plain.url, talk)
        await asyncio.sleep(0.1)
        before = router.samples("guard_checks_total")
        seen = await say(client, router.url, talk, new, answer=4, way=way)
        await checked(router, before)
        messages = talk.messages[:-1]
        body = talk.body(messages, 1)
        other = talk.body([talk.message(len_of(messages[0])), *messages[1:]], 1)
        block = talk.body([with_other_block(talk, messages[0]), *messages[1:]], 1)
        cached, at_d, at_p, wrong, near = await asyncio.gather(
            told(client, engines.decode, body, fresh=False),
            told(client, engines.decode, body, fresh=True),
            told(client, engines.prefill, body, fresh=True),
            told(client, engines.prefill, other, fresh=True),
            told(client, engines.prefill, block, fresh=True),
        )

    def apart(one: FirstToken, two: FirstToken) -> float:
        return distance(one, two, told=TOLD)

    return {
        "request": seen.request,
        "way": way,
        "new": new,
        "cached_tokens": cached.cached_tokens,
        "cached_at_d": apart(at_d, cached),
        "cached_at_p": apart(at_p, cached),
        "between_engines": apart(at_d, at_p),
        "other_history": apart(at_p, wrong),
        "other_block": apart(at_p, near),
        "logprobs": sorted(at_d.logprobs.values(), reverse=True),
    }


def len_of(message: Mapping[str, str]) -> int:
    """Tokens of a user's message."""
    return len(message["content"].split()) + 2


def with_other_block(talk: Talk, message: Mapping[str, str]) -> dict[str, str]:
    """The message with other words in one block near its middle."""
    text = message["content"]
    start = len(text) // 2 // _WORD_LETTERS * _WORD_LETTERS
    other = talk.message(_BLOCK + 2)["content"]
    return {"role": "user", "content": text[:start] + other + text[start + len(other) :]}


def report(rows: Sequence[dict[str, Any]]) -> None:
    """Percentiles of each distance."""
    for name in (
        "cached_at_d",
        "cached_at_p",
        "between_engines",
        "other_history",
        "other_block",
    ):
        values = sorted(row[name] for row in rows)
        print(
            f"{name}: n {len(values)} min {values[0]:.4f} p50 {at(values, 0.5):.4f} "
            f"p90 {at(values, 0.9):.4f} max {values[-1]:.4f}",
            flush=True,
        )
