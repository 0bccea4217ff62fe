"""The sequences of one call in the engine."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from functools import partial

from disaggpair_bed.simengine.apireply import Choice
from disaggpair_bed.simengine.apirequest import Call
from disaggpair_bed.simengine.apis import Api
from disaggpair_bed.simengine.engine import Engine, EngineDeadError
from disaggpair_bed.simengine.job import Request
from disaggpair_bed.simengine.sequence import Delta, Detokenizer


class Run:
    """One request of the core for every prompt and every one of `n` answers."""

    def __init__(self, engine: Engine, api: Api, call: Call, header_id: str | None) -> None:
        self.call = call
        reply_id = _reply_id(api, call, header_id)
        self.reply = api.reply(call, reply_id, engine.options)
        self.choices: list[Choice] = []
        self._engine = engine
        self._reply_id = reply_id
        self._ids: list[str] = []
        self._arrived: asyncio.Queue[tuple[Choice, Delta | None]] = asyncio.Queue()

    def submit(self) -> None:
        """Hand every sequence to the engine."""
        call = self.call
        for index, prompt in enumerate(call.prompts):
            parent = f"{self._reply_id}{'' if call.chat else f'-{index}'}-{secrets.token_hex(4)}"
            for child in range(call.n):
                request = Request(
                    id=parent if call.n == 1 else f"{child}_{parent}",
                    prompt_tokens=len(prompt),
                    tokens=prompt[:],
                    sampling=call.sampling,
                    params=dict(call.params) if call.params else None,
                    salt=call.salt,
                    lora_request=call.adapter,
                    tenant=call.tenant,
                    thinking=call.thinking,
                    reads_prefix_cache=not call.prompt_logprobs,
                )
                detokenizer = Detokenizer(
                    stop=call.stop,
                    keep_stop=call.keep_stop,
                    split_thinking=self._engine.options.reasoning,
                    stop_token_ids=call.sampling.stop_token_ids,
                )
                choice = Choice(len(self.choices), index)
                self._engine.submit(request, detokenizer, partial(self._deliver, choice))
                self._ids.append(request.id)
                self.choices.append(choice)

    def _deliver(self, choice: Choice, delta: Delta | None) -> None:
        self._arrived.put_nowait((choice, delta))

    async def deltas(self) -> AsyncIterator[tuple[Choice, Delta]]:
        """Deltas of all sequences, as they come.

        Raises:
            EngineDeadError: the core died.
        """
        pending = len(self.choices)
        while pending:
            choice, delta = await self._arrived.get()
            if delta is None:
                raise EngineDeadError
            choice.deltas.append(delta)
            pending -= delta.finish_reason is not None
            yield choice, delta

    def abort(self) -> None:
        """Give up what has not ended."""
        for request_id in self._ids:
            self._engine.abort(request_id)


def _reply_id(api: Api, call: Call, header_id: str | None) -> str:
    if not api.takes_header:
        return call.request_id or f"{api.prefix}_{secrets.token_hex(16)}"
    return f"{api.prefix}-{header_id or call.request_id or secrets.token_hex(16)}"
