"""Items of a response and the events of a stream that make one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

Body = dict[str, Any]

_DELTAS: Final[Mapping[str, str]] = {
    "message": "response.output_text",
    "reasoning": "response.reasoning_text",
    "function_call": "response.function_call_arguments",
}


@dataclass
class Item:
    """A message, some reasoning or the call of a function."""

    kind: str
    id: str
    function: str
    text: str = ""

    def done(self, status: str) -> Body:
        """The whole item."""
        if self.kind == "function_call":
            return self._call(self.text, status)
        if self.kind == "reasoning":
            return {**self._reasoning(status), "content": [self._part()]}
        return self._message([self._part()] if self.text else [], status)

    def begun(self) -> list[Body]:
        """What says that it begins."""
        if self.kind == "function_call":
            return [{"type": _ADDED, "item": self._call("", "in_progress")}]
        item = (
            self._reasoning("in_progress")
            if self.kind == "reasoning"
            else self._message([], "in_progress")
        )
        part = {"type": "response.content_part.added", "part": self._part(), **self._place()}
        return [{"type": _ADDED, "item": item}, part]

    def more(self, text: str) -> Body:
        """What says how it goes on."""
        self.text += text
        body = {"type": f"{_DELTAS[self.kind]}.delta", "delta": text, **self._place()}
        return {**body, "logprobs": []} if self.kind == "message" else body

    def ended(self, status: str) -> list[Body]:
        """What says that it ends."""
        closed: Body = {"type": f"{_DELTAS[self.kind]}.done", **self._place()}
        last = {"type": "response.output_item.done", "item": self.done(status)}
        if self.kind == "function_call":
            return [{**closed, "arguments": self.text, "name": self.function}, last]
        closed["text"] = self.text
        if self.kind == "message":
            closed["logprobs"] = []
        part = {"type": "response.content_part.done", "part": self._part(), **self._place()}
        return [closed, part, last]

    def _place(self) -> Body:
        place: Body = {"item_id": self.id}
        return place if self.kind == "function_call" else {**place, "content_index": 0}

    def _part(self) -> Body:
        if self.kind == "reasoning":
            return {"type": "reasoning_text", "text": self.text}
        return {"type": "output_text", "text": self.text, "annotations": [], "logprobs": []}

    def _message(self, content: list[Body], status: str) -> Body:
        shown = {"id": self.id, "type": "message", "role": "assistant"}
        return {**shown, "content": content, "status": status}

    def _reasoning(self, status: str) -> Body:
        return {"id": self.id, "type": "reasoning", "summary": [], "status": status}

    def _call(self, arguments: str, status: str) -> Body:
        return {
            "id": self.id,
            "type": "function_call",
            "call_id": f"call-{self.id}",
            "name": self.function,
            "arguments": arguments,
            "status": status,
        }


_ADDED: Final = "response.output_item.added"
