"""Answers in the shapes of the OpenAI API as vLLM fills them, streamed and whole."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from disaggpair_bed.simengine import tokens as vocabulary
from disaggpair_bed.simengine import toolcalls
from disaggpair_bed.simengine.apierrors import ApiError
from disaggpair_bed.simengine.apirequest import Call
from disaggpair_bed.simengine.options import EngineOptions
from disaggpair_bed.simengine.sequence import Delta
from disaggpair_bed.simengine.sse import event
from disaggpair_bed.simengine.toymodel import top_logprobs

DONE = b"data: [DONE]\n\n"


@dataclass
class Choice:
    """One answer as it grows."""

    index: int
    prompt: int
    """Which of the prompts it answers."""
    deltas: list[Delta] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(delta.text for delta in self.deltas)

    @property
    def thinking(self) -> str:
        """The thinking so far."""
        return "".join(delta.thinking for delta in self.deltas)

    @property
    def tokens(self) -> list[int]:
        """Tokens sampled so far."""
        return [delta.token for delta in self.deltas if delta.token is not None]

    @property
    def last(self) -> Delta:
        """The delta with the finish reason, once there is one."""
        return self.deltas[-1]


class Reply:
    """Shapes of one reply."""

    def __init__(self, call: Call, reply_id: str, options: EngineOptions) -> None:
        self._call = call
        self._details = options.prompt_tokens_details
        self._streams_handle = options.release.streams_handle
        self._thinking_key = options.release.thinking_key
        kind = "chat.completion" if call.chat else "text_completion"
        self._head = {
            "id": reply_id,
            "object": kind,
            "created": int(time.time()),
            "model": call.model,
        }
        self._chunk_head = dict(self._head, object=kind + ".chunk" if call.chat else kind)

    def opening(self, choice: Choice) -> bytes:
        """What a stream begins with for one choice: the role, or the echoed prompt."""
        if not self._call.chat:
            if not self._call.echo:
                return b""
            text = vocabulary.decode(self._call.prompts[choice.prompt])
            return self._event({"index": choice.index, "text": text, "finish_reason": None})
        delta: dict[str, Any] = {"role": "assistant", "content": ""}
        body: dict[str, Any] = {"index": choice.index, "delta": delta, "logprobs": None}
        extra = {}
        if self._call.token_ids:
            extra["prompt_token_ids"] = self._call.prompts[choice.prompt].tolist()
        return event({**self._chunk_head, "choices": [{**body, "finish_reason": None}], **extra})

    def chunk(self, choice: Choice, delta: Delta) -> bytes:
        """One chunk; empty when the delta adds nothing that a client sees."""
        if not (delta.text or delta.thinking or delta.finish_reason or self._call.token_ids):
            return b""
        body: dict[str, Any] = {"index": choice.index}
        if not self._call.chat:
            body["text"] = delta.text
        elif self._call.tool is not None:
            body["delta"] = self._tool_delta(choice, delta)
        else:
            content: dict[str, Any] = {"content": delta.text}
            if delta.thinking:
                content = {self._thinking_key: delta.thinking}
            body["delta"] = content
        body["logprobs"] = self._logprobs([delta])
        body["finish_reason"] = self._finish_reason(delta)
        body["stop_reason"] = delta.stop_reason
        if self._call.token_ids:
            body["token_ids"] = [] if delta.token is None else [delta.token]
        extra = {"kv_transfer_params": delta.params} if self._streams_handle else {}
        return self._event(body, extra)

    def ending(self, choices: Sequence[Choice]) -> bytes:
        """The chunk without choices that `include_usage` asks for, and the end marker."""
        if not self._call.include_usage:
            return DONE
        usage = {**self._chunk_head, "choices": [], "usage": self._usage(choices)}
        return event(usage) + DONE

    def broken(self, error: ApiError) -> bytes | None:
        """An error event, and the end marker all the same."""
        return event(error.body()) + DONE

    def whole(self, choices: Sequence[Choice], params: dict[str, Any] | None) -> dict[str, Any]:
        """A reply that is not streamed."""
        body: dict[str, Any] = {
            **self._head,
            "choices": [self._choice(choice) for choice in choices],
            "usage": self._usage(choices),
            "kv_transfer_params": params,
        }
        if self._call.token_ids and self._call.chat:
            body["prompt_token_ids"] = self._call.prompts[0].tolist()
        return body

    def _choice(self, choice: Choice) -> dict[str, Any]:
        body: dict[str, Any] = {"index": choice.index}
        if self._call.chat:
            body["message"] = self._message(choice)
        else:
            prompt = self._call.prompts[choice.prompt]
            body["text"] = (vocabulary.decode(prompt) if self._call.echo else "") + choice.text
        body["logprobs"] = self._logprobs(choice.deltas)
        body["finish_reason"] = self._finish_reason(choice.last)
        body["stop_reason"] = choice.last.stop_reason
        if self._call.token_ids:
            body["token_ids"] = choice.tokens
        return body

    def _message(self, choice: Choice) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": choice.text, "tool_calls": []}
        if choice.thinking:
            message[self._thinking_key] = choice.thinking
        if self._call.tool is not None:
            message["content"] = None
            message["tool_calls"] = [self._tool_call(choice, toolcalls.arguments(choice.text))]
        return message

    def _tool_call(self, choice: Choice, arguments: str) -> dict[str, Any]:
        function = {"name": self._call.tool, "arguments": arguments}
        return {
            "id": f"call-{self._head['id']}-{choice.index}",
            "type": "function",
            "function": function,
        }

    def _tool_delta(self, choice: Choice, delta: Delta) -> dict[str, Any]:
        """A piece of the arguments; the first one names the function."""
        if delta.thinking:
            return {self._thinking_key: delta.thinking}
        text = toolcalls.piece(choice.deltas)
        call: dict[str, Any] = {"index": 0, "function": {"arguments": text}}
        if toolcalls.is_first(choice.deltas):
            call = {"index": 0, **self._tool_call(choice, text)}
        return {"tool_calls": [call]}

    def _finish_reason(self, delta: Delta) -> str | None:
        if delta.finish_reason == "stop" and self._call.tool is not None:
            return "tool_calls"
        return delta.finish_reason

    def _logprobs(self, deltas: Sequence[Delta]) -> dict[str, Any] | None:
        if not self._call.logprobs:
            return None
        pairs = [
            (vocabulary.decode((delta.token,)), delta.logprob)
            for delta in deltas
            if delta.token is not None
        ]
        if not self._call.chat:
            return {
                "tokens": [text for text, _ in pairs],
                "token_logprobs": [value for _, value in pairs],
                "top_logprobs": [self._tops(*pair) for pair in pairs],
            }
        return {
            "content": [
                {**_token(text, value), "top_logprobs": self._top_list(text, value)}
                for text, value in pairs
            ]
        }

    def _tops(self, sampled: str, value: float) -> dict[str, float]:
        return top_logprobs(sampled, value, self._call.top_logprobs)

    def _top_list(self, sampled: str, value: float) -> list[dict[str, Any]]:
        if not self._call.top_logprobs:
            return []
        return [_token(*one) for one in self._tops(sampled, value).items()]

    def _usage(self, choices: Sequence[Choice]) -> dict[str, Any]:
        prompt = sum(map(len, self._call.prompts))
        sampled = sum(len(choice.tokens) for choice in choices)
        usage: dict[str, Any] = {
            "prompt_tokens": prompt,
            "total_tokens": prompt + sampled,
            "completion_tokens": sampled,
            "prompt_tokens_details": None,
        }
        if self._details:
            cached = max((choice.last.cached_tokens for choice in choices), default=0)
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        return usage

    def _event(self, choice: dict[str, Any], extra: dict[str, Any] | None = None) -> bytes:
        return event({**self._chunk_head, "choices": [choice], **(extra or {})})


def _token(text: str, value: float) -> dict[str, Any]:
    return {"token": text, "logprob": value, "bytes": None}
