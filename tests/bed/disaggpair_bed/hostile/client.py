"""One engine's completions with token ids, and what it counts."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal

import aiohttp

from disaggpair_bed.cpu.model import SERVED_NAME
from disaggpair_bed.hostile.distribution import Top
from disaggpair_connector import contract

Json = dict[str, Any]
Outcome = Literal["answered", "refused", "failed", "hung", "gone"]
"""200; 4xx; 5xx or an answer that cannot be read; no answer in time; no connection."""

FIRST_TURN: Final[Mapping[str, Any]] = {"do_remote_decode": True, "do_remote_prefill": False}
"""What P gets when there is no handle."""

_LIKELIEST = 5


@dataclass(frozen=True)
class Leg:
    """What one request came to."""

    outcome: Outcome
    seconds: float
    tokens: tuple[int, ...] = ()
    tops: tuple[Top, ...] = ()
    """Of each token in `tokens`."""
    params: Any = None
    """The `kv_transfer_params` of the answer."""
    message: str = ""
    """What the engine said against it."""
    arrivals_s: tuple[float, ...] = ()
    """When each piece of a streamed answer came, from the sending of the request on."""

    @property
    def answered(self) -> bool:
        """Whether there are tokens."""
        return self.outcome == "answered"

    @property
    def longest_gap_s(self) -> float:
        """Between two pieces of a streamed answer; 0 for one piece."""
        return max((later - earlier for earlier, later in pairwise(self.arrivals_s)), default=0.0)


class Client:
    """Requests to one engine.

    Args:
        session: without a time limit of its own.
        url: the engine's HTTP API.
        timeout_s: after which a request counts as hung and is given up.
    """

    def __init__(self, session: aiohttp.ClientSession, url: str, timeout_s: float) -> None:
        self._session = session
        self.url = url
        self.timeout_s = timeout_s

    async def complete(
        self,
        prompt: Sequence[int],
        tokens: int,
        *,
        params: Any = None,
        salt: str | None = None,
        **more: Any,
    ) -> Leg:
        """Greedy completion of a prompt by exactly `tokens` tokens."""
        begun = time.monotonic()
        status, answer = await self._post(_body(prompt, tokens, params, salt) | more)
        seconds = time.monotonic() - begun
        if isinstance(status, str):
            return Leg(status, seconds, message=answer)
        if status != 200:
            return Leg("refused" if status < 500 else "failed", seconds, message=answer)
        choice = answer["choices"][0]
        return Leg(
            "answered",
            seconds,
            tokens=tuple(choice["token_ids"]),
            tops=_tops(choice),
            params=answer.get(contract.KV_TRANSFER_PARAMS),
        )

    async def streamed(
        self,
        prompt: Sequence[int],
        tokens: int,
        *,
        params: Any = None,
        salt: str | None = None,
        begun: asyncio.Event | None = None,
        **more: Any,
    ) -> Leg:
        """As `complete`, in pieces as they come; vLLM 0.32 gives no parameters then.

        Sets `begun` with the first piece.
        """
        started = time.monotonic()
        choices: list[Json] = []
        arrivals: list[float] = []
        outcome: Outcome = "answered"
        message = ""
        try:
            async with self._request(
                _body(prompt, tokens, params, salt) | {"stream": True, **more}
            ) as response:
                async for line in response.content:
                    if response.status == 200 and line.startswith(b"data: {"):
                        arrivals.append(time.monotonic() - started)
                        if begun is not None:
                            begun.set()
                        choices += json.loads(line[6:]).get("choices", [])
                if response.status != 200 or not choices:
                    outcome, message = "failed", f"status {response.status}"
        except TimeoutError:
            outcome, message = "hung", f"{len(arrivals)} pieces in {self.timeout_s:g} s"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            outcome, message = "failed", str(error)
        return Leg(
            outcome,
            time.monotonic() - started,
            tokens=tuple(token for choice in choices for token in choice["token_ids"]),
            tops=tuple(top for choice in choices for top in _tops(choice)),
            message=message,
            arrivals_s=tuple(arrivals),
        )

    async def distributions(
        self, prompt: Sequence[int], first: int, salt: str
    ) -> tuple[Top, ...] | None:
        """The distribution at each position of the prompt from `first` on, computed at once.

        None without an answer. The engine uses no prefix cache for it.
        """
        status, answer = await self._post(
            {
                "prompt": list(prompt),
                "max_tokens": 1,
                "prompt_logprobs": _LIKELIEST,
                "cache_salt": salt,
            }
        )
        if status != 200:
            return None
        return tuple(
            _likeliest({int(token): entry["logprob"] for token, entry in position.items()})
            for position in answer["choices"][0]["prompt_logprobs"][first:]
        )

    async def metrics(self) -> str:
        """The page of counters; empty if there is none."""
        limit = aiohttp.ClientTimeout(total=self.timeout_s)
        try:
            async with self._session.get(f"{self.url}/metrics", timeout=limit) as response:
                return await response.text()
        except (aiohttp.ClientError, TimeoutError, OSError):
            return ""

    async def _post(self, body: Json) -> tuple[int | Literal["hung", "gone", "failed"], Any]:
        try:
            async with self._request(body) as response:
                if response.status != 200:
                    return response.status, (await response.text())[:300]
                return 200, await response.json()
        except TimeoutError:
            return "hung", f"no answer in {self.timeout_s:g} s"
        except aiohttp.ClientConnectorError as error:
            return "gone", str(error)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return "failed", str(error)

    def _request(self, body: Json) -> Any:
        whole = {"model": SERVED_NAME, "temperature": 0, "ignore_eos": True, **body}
        limit = aiohttp.ClientTimeout(total=self.timeout_s)
        return self._session.post(f"{self.url}/v1/completions", json=whole, timeout=limit)


def _body(prompt: Sequence[int], tokens: int, params: Any, salt: str | None) -> Json:
    body: Json = {
        "prompt": list(prompt),
        "max_tokens": tokens,
        "logprobs": _LIKELIEST,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
    }
    if params is not None:
        body[contract.KV_TRANSFER_PARAMS] = params
    if salt is not None:
        body["cache_salt"] = salt
    return body


def _tops(choice: Json) -> tuple[Top, ...]:
    return tuple(
        _likeliest({int(name.removeprefix("token_id:")): value for name, value in position.items()})
        for position in choice["logprobs"]["top_logprobs"]
    )


def _likeliest(position: Top) -> Top:
    """Without the token that stands there, which vLLM adds when it is none of the likeliest."""
    kept = sorted(position.items(), key=lambda entry: -entry[1])[:_LIKELIEST]
    return dict(kept)
