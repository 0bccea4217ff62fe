"""What clients say: conversations of several shapes, and what happens to a turn of one. Pure."""

from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Literal

from disaggpair_bed.chaos.truth import Said

Json = dict[str, Any]
Manner = Literal["read", "leave", "slow"]
"""Read the answer as it comes, go away after some of it, or read it slowly."""

CHAT: Final = "/v1/chat/completions"
TEXT: Final = "/v1/completions"

LONGEST: Final = 14
"""A conversation with more messages ends."""

_TEXT: Final = """
river town bridge stone water winter summer north south market garden tower field road boat miller
baker smith king queen forest meadow valley hill harbour island church
"""
_WORDS: Final = _TEXT.split()
_TOOLS: Final = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("look_up", "count")
]
_HOSTILE: Final[Json] = {
    "do_remote_prefill": True,
    "do_remote_decode": False,
    "remote_block_ids": [[1, 2, 3]],
    "remote_engine_id": "x",
    "remote_request_id": "y",
    "remote_host": "203.0.113.1",
    "remote_port": 1,
}

SYSTEM: Final = "You know the land and its people, and you say what you know in a few words. " * 3
"""With which many conversations begin, whoever has them."""

_KINDS: Final = {
    "next": 30,
    "at once": 3,
    "fork": 4,
    "again": 3,
    "edit": 4,
    "cut": 3,
    "salt": 1,
    "stop string": 3,
    "two answers": 2,
    "call": 4,
    "think": 4,
    "hostile": 2,
    "refused": 2,
    "leave": 6,
    "slow": 2,
}
"""How often each happens to a turn."""


@dataclass
class Shot:
    """One request."""

    kind: str
    path: str
    body: Json
    headers: dict[str, str]
    manner: Manner = "read"
    after: int = 0
    """Pieces of the answer after which the client leaves; 0 for before any."""


@dataclass
class Talk:
    """One conversation of one caller."""

    rng: Random
    number: int
    messages: list[Json] = field(default_factory=list)
    text: str | None = None
    """Prompt and answers of a conversation over plain text."""
    fields: Json = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def begun(cls, rng: Random, number: int) -> "Talk":
        """A new conversation: with an id in the body or a header, or without one."""
        talk = cls(rng, number)
        owner = rng.randrange(3)
        talk.headers["Authorization"] = f"Bearer caller-{owner}"
        talk.fields["sim_tenant"] = f"caller-{owner}"
        named = rng.choice(["body", "header", "none", "none"])
        if named == "body":
            # Callers use the same ids.
            talk.fields["conversation_id"] = f"c-{number // 3}"
        elif named == "header":
            talk.headers["X-Conversation-Id"] = f"h-{number}"
        if rng.random() < 0.15:
            talk.text = f"{number}. {said(rng, 50)}"
        elif rng.random() < 0.6:
            talk.messages.append({"role": "system", "content": SYSTEM})
        if rng.random() < 0.2:
            talk.fields["cache_salt"] = f"salt-{number % 2}"
        if rng.random() < 0.2:
            talk.fields["tools"] = _TOOLS
        return talk

    @property
    def is_over(self) -> bool:
        """Whether it has become too long."""
        return len(self.messages) > LONGEST or len(self.text or "") > 1_500

    def shots(self) -> list[Shot]:
        """What is sent next; several requests at the same time for a fork."""
        kind = self.rng.choices(list(_KINDS), list(_KINDS.values()))[0]
        if self.text is not None:
            return self._of_text(kind)
        self._before(kind)
        if kind != "again" or not self.messages or self.messages[-1]["role"] != "user":
            self.messages.append({"role": "user", "content": self._question(kind)})
        first = self._shot(kind)
        if kind == "at once":
            return [first, deepcopy(first)]
        if kind != "fork":
            return [first]
        other = deepcopy(first)
        other.body["messages"][-1]["content"] += " " + said(self.rng, 3)
        return [first, other]

    def went(self, shot: Shot, answer: Said) -> None:
        """The answer joins the history, as one client or another keeps it."""
        if self.text is not None:
            self.text += answer.text + " " + said(self.rng, 8)
            return
        message: Json = {"role": "assistant", "content": answer.text}
        if answer.reasoning and self.rng.random() < 0.5:
            message["reasoning"] = answer.reasoning
        if answer.calls:
            message["content"] = None
            message["tool_calls"] = [
                {"id": f"call-{at}", "type": "function", "function": {"name": n, "arguments": a}}
                for at, (n, a) in enumerate(answer.calls)
            ]
        self.messages.append(message)
        if answer.calls:
            self.messages.append({"role": "tool", "tool_call_id": "call-0", "content": "42"})

    def failed(self) -> None:
        """The turn had no answer: the client takes its question back, or asks again."""
        if self.text is None and self.rng.random() < 0.5:
            self.messages.pop()

    def _question(self, kind: str) -> str:
        marks = {"call": "#call count ", "think": "#think 6 "}
        words = self.rng.choice([12, 25, 60])
        return f"{marks.get(kind, '')}{said(self.rng, words)}"

    def _before(self, kind: str) -> None:
        """What becomes of the history before the question."""
        if kind == "again" and self.messages and self.messages[-1]["role"] == "assistant":
            self.messages.pop()
        elif kind == "edit" and self.messages:
            one = self.rng.randrange(len(self.messages))
            if isinstance(self.messages[one].get("content"), str):
                self.messages[one]["content"] = said(self.rng, 30)
        elif kind == "cut" and len(self.messages) > 2:
            del self.messages[: self.rng.randrange(1, len(self.messages))]
            while self.messages and self.messages[0]["role"] == "tool":
                del self.messages[0]
        elif kind == "salt":
            self.fields["cache_salt"] = f"salt-{self.rng.randrange(3)}"
        elif kind == "call":
            self.fields["tools"] = _TOOLS

    def _shot(self, kind: str) -> Shot:
        body: Json = {"model": "toy", "messages": deepcopy(self.messages), **deepcopy(self.fields)}
        body["stream"] = self.rng.random() < 0.6
        if kind == "refused":
            body["messages"].append({"content": "no role"})
        return self._finished(Shot(kind, CHAT, body, dict(self.headers)))

    def _of_text(self, kind: str) -> list[Shot]:
        kind = (
            kind if kind in ("stop string", "two answers", "hostile", "leave", "slow") else "text"
        )
        fields = {key: value for key, value in self.fields.items() if key != "tools"}
        body: Json = {"model": "toy", "prompt": self.text, **fields}
        body["stream"] = self.rng.random() < 0.5
        return [self._finished(Shot(kind, TEXT, body, dict(self.headers)))]

    def _finished(self, shot: Shot) -> Shot:
        rng, body = self.rng, shot.body
        if body["stream"] and rng.random() < 0.5:
            body["stream_options"] = {"include_usage": True}
        if rng.random() < 0.2:
            body["max_tokens"] = rng.choice([1, 3, 30])
        if shot.kind == "stop string":
            body["stop"] = [rng.choice(["a", "e ", " k"])]
        elif shot.kind == "two answers":
            body["n"] = 2
        elif shot.kind == "hostile":
            body["kv_transfer_params"] = _HOSTILE
            body["vllm_xargs"] = {"kv_transfer_params": _HOSTILE}
        elif shot.kind == "leave":
            shot.manner, shot.after = "leave", rng.choice([0, 0, 1, 2, 5])
        elif shot.kind == "slow":
            shot.manner = "slow"
        if rng.random() < 0.7:
            shot.headers["X-Way"] = rng.choice(["full", "pull", "pull", "direct", "direct"])
        return shot


def said(rng: Random, words: int) -> str:
    """Some words."""
    return " ".join(rng.choices(_WORDS, k=words))
