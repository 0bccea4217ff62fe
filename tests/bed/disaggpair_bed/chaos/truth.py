"""What a request's answer is: computed by an engine core that is alone and reads nothing.

Sockets, a cache and a peer are what it lacks, so whatever a pair answers otherwise is wrong.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from disaggpair_bed.simengine.apierrors import ApiError
from disaggpair_bed.simengine.apireply import Choice
from disaggpair_bed.simengine.apis import APIS
from disaggpair_bed.simengine.connector import PullConnector
from disaggpair_bed.simengine.core import EngineCore
from disaggpair_bed.simengine.handle import HandleMaker
from disaggpair_bed.simengine.job import Request
from disaggpair_bed.simengine.options import EngineOptions
from disaggpair_bed.simengine.sequence import Detokenizer

Json = dict[str, Any]


@dataclass(frozen=True)
class Said:
    """One answer as a client understands it."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    """Name and arguments of each."""
    finish: str | None = None

    def begins_with(self, other: "Said") -> bool:
        """Whether an answer that broke off is the beginning of this one."""
        return (
            self.text.startswith(other.text)
            and self.reasoning.startswith(other.reasoning)
            and len(other.calls) <= len(self.calls)
            and all(
                name == whole and arguments.startswith(part)
                for (name, arguments), (whole, part) in zip(self.calls, other.calls, strict=False)
            )
        )


def of_whole(body: Json) -> tuple[Said, ...]:
    """The answers in a body that was not streamed."""
    return tuple(map(_of_choice, body["choices"]))


def _of_choice(choice: Json) -> Said:
    message = choice.get("message")
    if message is None:
        return Said(choice["text"], finish=choice["finish_reason"])
    calls = tuple(
        (call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls") or ()
    )
    return Said(
        message.get("content") or "",
        message.get("reasoning") or "",
        calls,
        choice["finish_reason"],
    )


def of_chunks(chunks: Sequence[Json]) -> tuple[Said, ...]:
    """The answers that the chunks of a stream add up to."""
    found: dict[int, Json] = {}
    for chunk in chunks:
        for choice in chunk.get("choices") or ():
            one = found.setdefault(
                choice["index"], {"text": "", "reasoning": "", "calls": {}, "finish": None}
            )
            delta = choice.get("delta") or {}
            one["text"] += delta.get("content") or choice.get("text") or ""
            one["reasoning"] += delta.get("reasoning") or ""
            one["finish"] = choice.get("finish_reason") or one["finish"]
            for part in delta.get("tool_calls") or ():
                call = one["calls"].setdefault(part["index"], ["", ""])
                call[0] = part["function"].get("name") or call[0]
                call[1] += part["function"].get("arguments") or ""
    return tuple(
        Said(
            one["text"],
            one["reasoning"],
            tuple((name, arguments) for name, arguments in one["calls"].values()),
            one["finish"],
        )
        for _, one in sorted(found.items())
    )


class Truth:
    """Answers for engines of these options."""

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        settings = replace(options.core, transfer=None, prefix_caching=False)
        handles = HandleMaker(options.release, "alone", "127.0.0.1", 0)
        self._core = EngineCore(settings, options.answers, handles, None, PullConnector)
        self._asked = 0

    def answers(self, path: str, body: Json) -> tuple[Said, ...] | None:
        """All answers of a request; None when the engine refuses it."""
        api = next(one for one in APIS if one.path == path)
        try:
            call = api.read(body, self._options)
        except ApiError:
            return None
        choices: list[Choice] = []
        for index, prompt in enumerate(call.prompts):
            choice = Choice(len(choices), index)
            detokenizer = Detokenizer(
                stop=call.stop,
                keep_stop=call.keep_stop,
                split_thinking=self._options.reasoning,
                stop_token_ids=call.sampling.stop_token_ids,
            )
            self._asked += 1
            request = Request(
                id=str(self._asked),
                prompt_tokens=len(prompt),
                tokens=prompt[:],
                sampling=call.sampling,
                lora_request=call.adapter,
                thinking=call.thinking,
            )
            self._run(request, choice, detokenizer)
            choices += [choice] * call.n
        reply: Any = api.reply(replace(call, n=1), "id", self._options)
        return of_whole(reply.whole(choices, None))

    def _run(self, request: Request, choice: Choice, detokenizer: Detokenizer) -> None:
        core = self._core
        core.add(request)
        while True:
            for output in core.step(0.0).outputs:
                delta = detokenizer.feed(output)
                choice.deltas.append(delta)
                if delta.finish_reason is not None:
                    if output.ending is None:
                        core.abort(request.id, 0.0)
                    return
