"""From the core's tokens to text: stop strings, and thinking apart from the answer."""

from dataclasses import dataclass, field
from typing import Any

from disaggpair_bed.simengine import tokens as vocabulary
from disaggpair_bed.simengine.decisions import Ending
from disaggpair_bed.simengine.job import Output


@dataclass(frozen=True)
class Delta:
    """What one output adds to an answer."""

    text: str = ""
    thinking: str = ""
    token: int | None = None
    logprob: float = 0.0
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    params: dict[str, Any] | None = None
    cached_tokens: int = 0


@dataclass
class Detokenizer:
    """Turns the outputs of one request into deltas.

    Text that may be the beginning of a stop string is held back until it is clear what it is.
    """

    stop: tuple[str, ...] = ()
    keep_stop: bool = False
    """`include_stop_str_in_output`."""
    split_thinking: bool = False
    stop_token_ids: frozenset[int] = frozenset()
    _held: str = ""
    _thinking: bool = field(default=False)

    def feed(self, output: Output) -> Delta:
        """The delta of one output; its finish reason may be a stop string's."""
        thinking = text = ""
        if output.token is not None:
            thinking, text = self._piece(output.token)
        reason = output.ending.value if output.ending else None
        stop_reason: str | int | None = None
        found = self._find_stop(text)
        if found is not None:
            text, stop_reason = found
            reason = "stop"
        else:
            text = self._hold_back(text, finished=output.ending is not None)
            if output.ending is Ending.STOPPED and output.token in self.stop_token_ids:
                stop_reason = output.token
        return Delta(
            text,
            thinking,
            output.token,
            output.logprob,
            reason,
            stop_reason,
            output.params,
            output.cached_tokens,
        )

    def _piece(self, token: int) -> tuple[str, str]:
        """Thinking and text of one token."""
        if self.split_thinking and token in (vocabulary.THINK_START, vocabulary.THINK_END):
            self._thinking = token == vocabulary.THINK_START
            return "", ""
        if token in (vocabulary.THINK_START, vocabulary.THINK_END):
            return "", vocabulary.SPECIAL_TEXT[token]
        piece = vocabulary.decode((token,))
        return (piece, "") if self._thinking else ("", piece)

    def _find_stop(self, text: str) -> tuple[str, str] | None:
        if not self.stop or not text:
            return None
        candidate = self._held + text
        places = [(candidate.find(stop), stop) for stop in self.stop if stop in candidate]
        if not places:
            return None
        place, stop = min(places)
        return candidate[: place + len(stop) if self.keep_stop else place], stop

    def _hold_back(self, text: str, *, finished: bool) -> str:
        if not self.stop:
            return text
        candidate = self._held + text
        keep = 0 if finished else max(map(len, self.stop)) - 1
        self._held = candidate[len(candidate) - keep :] if keep else ""
        return candidate[: len(candidate) - keep] if keep else candidate
