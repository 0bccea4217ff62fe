"""One line per turn: the record a turn fills in and how it is written. No prompt ever enters.

The fields of a line are a format that other programs read (docs/router.md, "The line of a turn"):
names and meanings stay, and new ones may be added.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from disaggpair_router.session import MissReason
from disaggpair_router.usage import Usage, usage_of

Way = Literal["FULL", "PULL", "DIRECT", "SINGLE", "NONE"]
"""Both legs, P computes all; both legs, P reads from D; D alone, which holds the history; one
engine alone, for another reason; no engine was asked."""

LogFormat = Literal["human", "json"]

logger = logging.getLogger("disaggpair_router.turn")


@dataclass(slots=True)
class TurnRecord:
    """What is known of a turn so far."""

    request_id: str
    conversation: str
    """A keyed digest, see `conversation.Conversation.label`."""
    started: float
    """When the request's last byte was read, in monotonic seconds."""
    api: str = ""
    stream: bool = False
    tenant: str = ""
    trace: str = ""
    """Id of the turn's trace, if one is recorded."""
    way: Way = "NONE"
    miss: MissReason | None = None
    """Why no handle was used; None when one was, or when none was looked for."""
    why: str = ""
    """Why the turn ran this way where there was a choice."""
    estimates: Mapping[Any, float] = field(default_factory=dict)
    """Seconds to the first token that each way was taken to need."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    retries: int = 0
    """Legs that were sent a second time."""
    before_s: float | None = None
    """From the start to the first leg, the claim included."""
    claim_s: float | None = None
    prefill_s: float | None = None
    between_s: float | None = None
    """From the end of the P leg to the D leg."""
    decode_first_byte_s: float | None = None
    """From the D leg to its first byte; to the end of an answer that is not streamed."""
    after_s: float | None = None
    """From D's first byte to the client's; of an answer that is not streamed from D's last."""
    first_byte_s: float | None = None
    """From the start of the turn, as the client of a stream sees it."""
    total_s: float | None = None
    status: int = 200
    error: str = ""
    """Code of the error, also of one inside a stream whose status was 200."""

    def add_prompt_usage(self, usage: object) -> None:
        """Take the P leg's usage; its one token is no answer."""
        self._add_prompt(usage_of(usage), cached=True)

    def add_usage(self, usage: object) -> None:
        """Take the usage of the leg that answered.

        After a P leg its cached tokens are those that D read from P, so they do not count.
        """
        told = usage_of(usage)
        self._add_prompt(told, cached=self.prefill_s is None)
        if told.answer is not None:
            self.completion_tokens = told.answer

    def _add_prompt(self, told: Usage, *, cached: bool) -> None:
        if told.prompt is not None:
            self.prompt_tokens = told.prompt
        if cached and told.cached is not None:
            self.cached_tokens = told.cached

    @property
    def lookup(self) -> Literal["hit", "MISS"] | None:
        """Whether a handle was used; None when none was looked for."""
        if self.miss:
            return "MISS"
        return "hit" if self.way in ("PULL", "DIRECT") else None

    def fields(self) -> dict[str, Any]:
        """The line's fields in their order; those that are not known are left out."""
        fields = {
            "request": self.request_id,
            "conversation": self.conversation,
            "tenant": self.tenant or None,
            "trace": self.trace or None,
            "api": self.api or None,
            "stream": self.stream,
            "way": self.way,
            "kv": self.lookup,
            "reason": self.miss,
            "why": self.why or None,
            "estimated_ms": {way: _ms(value) for way, value in self.estimates.items()} or None,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "completion_tokens": self.completion_tokens,
            "retries": self.retries or None,
            "before_ms": _ms(self.before_s),
            "claim_ms": _ms(self.claim_s),
            "prefill_ms": _ms(self.prefill_s),
            "between_ms": _ms(self.between_s),
            "decode_first_byte_ms": _ms(self.decode_first_byte_s),
            "after_ms": _ms(self.after_s),
            "first_byte_ms": _ms(self.first_byte_s),
            "total_ms": _ms(self.total_s),
            "status": self.status,
            "error": self.error or None,
        }
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """A request that failed and was no turn."""

    request_id: str
    api: str
    """Empty for a path of none."""
    tenant: str
    """Empty where it is not known."""
    status: int
    error: str
    """Code of the error."""

    def fields(self) -> dict[str, Any]:
        """The line's fields, named as those of a turn."""
        fields = {
            "request": self.request_id,
            "tenant": self.tenant,
            "api": self.api,
            "status": self.status,
            "error": self.error,
        }
        return {name: value for name, value in fields.items() if value}


class LineFormatter(logging.Formatter):
    """Lines for people or JSON objects, one per record, with the time in UTC.

    Args:
        style: of the lines.
        worker: number of the process where there are several; each of its lines has it.
    """

    def __init__(self, style: LogFormat, worker: int | None = None) -> None:
        super().__init__()
        self._json = style == "json"
        self._worker = {} if worker is None else {"worker": worker}

    def format(self, record: logging.LogRecord) -> str:
        """One line; a record with a turn or request shows its fields, another its message.

        The traceback of an exception follows: a field `traceback` of the JSON object, lines for
        people.
        """
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        told = getattr(record, "turn", None)
        traceback = self.formatException(record.exc_info) if record.exc_info else ""
        if self._json:
            line: dict[str, Any] = {"time": time, "level": record.levelname.lower()}
            if isinstance(told, TurnRecord):
                # Readers count the pauses between the turns of a conversation.
                line["ts"] = round(record.created - (told.total_s or 0.0), 3)
                line |= told.fields()
            else:
                line["message"] = record.getMessage()
                line |= told.fields() if isinstance(told, RequestRecord) else {}
            return json.dumps(line | self._worker | ({"traceback": traceback} if traceback else {}))
        if isinstance(told, TurnRecord | RequestRecord):
            kind = "turn" if isinstance(told, TurnRecord) else "request"
            return f"{time} {kind} {_words(told.fields() | self._worker)}"
        words = _words(self._worker)
        lines = [
            " ".join(filter(None, (time, record.levelname, words, record.getMessage()))),
            traceback,
        ]
        return "\n".join(filter(None, lines))


def log_turn(record: TurnRecord) -> None:
    """Write the turn's line."""
    _log(record, "turn")


def log_request(record: RequestRecord) -> None:
    """Write the line of a request that was no turn."""
    _log(record, "a request failed before a turn")


def _log(record: TurnRecord | RequestRecord, message: str) -> None:
    if logger.isEnabledFor(logging.INFO):
        # What the logger itself would add, the place in the source, is the same for every turn.
        line = logging.LogRecord(logger.name, logging.INFO, __file__, 0, message, None, None)
        line.turn = record
        logger.handle(line)


def _words(fields: Mapping[str, Any]) -> str:
    return " ".join(
        _word(name, value) for name, value in fields.items() if not isinstance(value, dict)
    )


def _word(name: str, value: object) -> str:
    # The two words that people and alerts look for stand bare.
    return str(value) if name == "kv" else f"{name}={value}"


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1_000, 2)
