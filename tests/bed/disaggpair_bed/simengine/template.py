"""A toy chat template: messages to tokens, with the habits of real templates as switches.

Without switches the template is prefix-stable: the prompt of a turn, followed by the sampled
answer, is how the next turn's prompt begins. Each switch breaks that in a way that real templates
do.
"""

import json
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from disaggpair_bed.simengine import tokens as vocabulary

HEADER_FIELDS = ("tools", "tool_choice", "response_format", "reasoning_effort", "documents")
"""Request fields that the template writes near the top of the prompt."""


class TemplateError(ValueError):
    """Messages that cannot be rendered; the text is for the client."""


@dataclass(frozen=True)
class ChatTemplate:
    """How messages become a prompt."""

    strip_reasoning: bool = False
    """Leave the thinking of earlier answers out of the prompt."""
    trim: bool = False
    """Strip white space around every message."""
    date: str = ""
    """A date that is written into the prompt; empty for none."""
    unstable_generation_prompt: bool = False
    """Open the answer with an empty block of thinking that the history does not have."""

    def render(
        self,
        messages: Sequence[Any],
        header: Mapping[str, Any],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
    ) -> "array[int]":
        """Tokens of a prompt.

        Raises:
            TemplateError: a message has no role, or content that is no text.
        """
        prompt = array("Q", [vocabulary.BEGIN])
        preamble = {key: header[key] for key in HEADER_FIELDS if header.get(key) is not None}
        if kwargs := header.get("chat_template_kwargs"):
            preamble["kwargs"] = kwargs
        if self.date:
            preamble["date"] = self.date
        if preamble:
            self._turn(prompt, "header", vocabulary.encode(_compact(preamble)))
        for message in messages:
            self._message(prompt, message)
        if continue_final_message and messages:
            prompt.pop()
        elif add_generation_prompt:
            self._open(prompt, "assistant")
            if self.unstable_generation_prompt:
                prompt.extend((vocabulary.THINK_START, vocabulary.THINK_END))
        return prompt

    def _message(self, prompt: "array[int]", message: object) -> None:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise TemplateError("a message needs a role")
        body = array("Q")
        thinking = message.get("reasoning")
        if thinking is None:  # as vLLM 0.32 reads the two names
            thinking = message.get("reasoning_content")
        if thinking and isinstance(thinking, str) and not self.strip_reasoning:
            body.append(vocabulary.THINK_START)
            body.extend(vocabulary.encode(thinking))
            body.append(vocabulary.THINK_END)
        body.extend(self._content(message.get("content")))
        if calls := message.get("tool_calls"):
            body.extend(vocabulary.encode(_compact(_parsed_arguments(calls))))
        self._turn(prompt, message["role"], body)

    def _content(self, content: object) -> "array[int]":
        if content is None:
            return array("Q")
        if isinstance(content, str):
            return vocabulary.encode(content.strip() if self.trim else content)
        if not isinstance(content, Sequence):
            raise TemplateError("the content of a message is text or a list of parts")
        body = array("Q")
        text: list[str] = []
        for part in content:
            if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
                raise TemplateError("a content part needs a type")
            if part["type"] == "text":
                text.append(str(part.get("text", "")))
            else:
                body.append(vocabulary.media(_compact(part)))
        joined = "".join(text)
        return body + vocabulary.encode(joined.strip() if self.trim else joined)

    def _open(self, prompt: "array[int]", role: str) -> None:
        prompt.append(vocabulary.TURN_START)
        prompt.extend(vocabulary.encode(role))
        prompt.append(vocabulary.HEADER_END)

    def _turn(self, prompt: "array[int]", role: str, body: "array[int]") -> None:
        self._open(prompt, role)
        prompt.extend(body)
        prompt.append(vocabulary.END_OF_TURN)


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def _parsed_arguments(calls: object) -> object:
    """Tool calls with their arguments as values, as templates write them anew."""
    if not isinstance(calls, Sequence):
        raise TemplateError("tool_calls is a list")
    parsed = []
    for call in calls:
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            raise TemplateError("a tool call needs a function")
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except ValueError:
                raise TemplateError("the arguments of a tool call are not JSON") from None
        parsed.append({"name": function.get("name"), "arguments": arguments})
    return parsed
