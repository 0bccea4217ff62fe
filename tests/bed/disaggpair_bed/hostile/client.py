"""One engine's completions with token ids, and what it counts."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

    @property
    def answered(self) -> bool:
        """Whether there are tokens."""
        return self.outcome == "answered"


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
        body: Json = {
            "prompt": list(prompt),
            "max_tokens": tokens,
            "logprobs": _LIKELIEST,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            **more,
        }
        if params is not None:
            body[contract.KV_TRANSFER_PARAMS] = params
        return await self._leg(body, salt)

    async def distributions(
        self, prompt: Sequence[int], first: int, salt: str
    ) -> tuple[Top, ...] | None:
        """The distribution at each position of the prompt from `first` on, computed at once.

        None without an answer. The engine uses no prefix cache for it.
        """
        body: Json = {"prompt": list(prompt), "max_tokens": 1, "prompt_logprobs": _LIKELIEST}
        status, answer = await self._post(body, salt)
        if status != 200:
            return None
        return tuple(
            {int(token): entry["logprob"] for token, entry in position.items()}
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

    async def _leg(self, body: Json, salt: str | None) -> Leg:
        begun = time.monotonic()
        status, answer = await self._post(body, salt)
        seconds = time.monotonic() - begun
        if isinstance(status, str):
            return Leg(status, seconds, message=str(answer))
        if status != 200:
            return Leg("refused" if status < 500 else "failed", seconds, message=str(answer))
        choice = answer["choices"][0]
        return Leg(
            "answered",
            seconds,
            tokens=tuple(choice["token_ids"]),
            tops=tuple(
                {int(name.removeprefix("token_id:")): value for name, value in position.items()}
                for position in choice["logprobs"]["top_logprobs"]
            ),
            params=answer.get(contract.KV_TRANSFER_PARAMS),
        )

    async def _post(
        self, body: Json, salt: str | None
    ) -> tuple[int | Literal["hung", "gone", "failed"], Any]:
        whole = {"model": SERVED_NAME, "temperature": 0, "ignore_eos": True, **body}
        if salt is not None:
            whole["cache_salt"] = salt
        limit = aiohttp.ClientTimeout(total=self.timeout_s)
        try:
            async with self._session.post(
                f"{self.url}/v1/completions", json=whole, timeout=limit
            ) as response:
                if response.status != 200:
                    return response.status, (await response.text())[:300]
                return 200, await response.json()
        except TimeoutError:
            return "hung", f"no answer in {self.timeout_s:g} s"
        except aiohttp.ClientConnectorError as error:
            return "gone", str(error)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return "failed", str(error)
