"""Conversations of made-up words through a router, and what a client sees of their turns."""

import json
import random
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import aiohttp
from model import MESSAGE_TOKENS, VOCABULARY, vocabulary

_WORDS: Final = list(vocabulary())
_FIRST_WORD: Final = 10
"""Those before are special or marks."""
FILLER: Final = 32
"""New tokens of the turn that brings a conversation back to its beginning."""
_LIMIT_S: Final = 240.0


@dataclass(frozen=True)
class Seen:
    """One turn, as its client saw it. Times in seconds."""

    request: str
    """Id of the request, which the router's line has, too."""
    new: int
    late_s: float
    """How much later it was sent than planned."""
    first_token_s: float
    gaps_s: tuple[float, ...]
    """Between the pieces of its answer."""


class Talk:
    """One conversation.

    Args:
        name: its id.
        seed: of its words.
        history: tokens of its first turn.
    """

    def __init__(self, name: str, seed: int, history: int) -> None:
        self._random = random.Random(seed)
        self.name = name
        self.first = self.message(history)
        self.messages: list[dict[str, str]] = []
        self._turns = 0

    def message(self, tokens: int) -> dict[str, str]:
        """A user's message of so many new tokens, marks included."""
        numbers = (
            self._random.randrange(_FIRST_WORD, VOCABULARY) for _ in range(tokens - MESSAGE_TOKENS)
        )
        return {"role": "user", "content": " ".join(_WORDS[number] for number in numbers)}

    def body(self, messages: list[dict[str, str]], answer: int) -> dict[str, Any]:
        """A request for an answer of so many tokens."""
        return {
            "model": "m",
            "messages": messages,
            "max_tokens": answer,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
        }

    def headers(self, way: str = "") -> dict[str, str]:
        """Of its next turn; a way is asked for if one is given."""
        self._turns += 1
        named = {"X-Conversation-Id": self.name, "X-Request-Id": f"{self.name}-{self._turns}"}
        return {**named, **({"X-Way": way} if way else {})}


async def say(
    client: aiohttp.ClientSession,
    url: str,
    talk: Talk,
    new: int,
    *,
    answer: int,
    way: str = "",
    late_s: float = 0.0,
) -> Seen:
    """One turn, whose answer joins the conversation."""
    prompt = [*talk.messages, talk.first if not talk.messages else talk.message(new)]
    headers = talk.headers(way)
    text: list[str] = []
    times: list[float] = []
    limit = aiohttp.ClientTimeout(_LIMIT_S)
    sent = time.perf_counter()
    async with client.post(
        f"{url}/v1/chat/completions", json=talk.body(prompt, answer), headers=headers, timeout=limit
    ) as reply:
        async for line in reply.content:
            piece = _piece(line)
            if piece:
                times.append(time.perf_counter())
                text.append(piece)
    if reply.status != 200 or not times:
        raise RuntimeError(f"{headers['X-Request-Id']}: {reply.status} without an answer")
    talk.messages = [*prompt, {"role": "assistant", "content": "".join(text)}]
    gaps = tuple(after - before for before, after in pairwise(times))
    return Seen(headers["X-Request-Id"], new, late_s, times[0] - sent, gaps)


async def begin(client: aiohttp.ClientSession, url: str, talk: Talk) -> None:
    """The first turn, or the second one anew: then D holds the first turn's tokens and few more.

    Through a router for which D serves alone, what it has in its prefix cache being kept.
    """
    talk.messages = talk.messages[:2]
    if not talk.messages:
        await say(client, url, talk, 0, answer=4)
    await say(client, url, talk, FILLER, answer=4)


def _piece(line: bytes) -> str:
    if not line.startswith(b"data: {"):
        return ""
    choices = json.loads(line[6:]).get("choices") or [{}]
    return str(choices[0].get("delta", {}).get("content") or "")
