"""What each way of a turn takes, from a prior and what earlier turns took. Pure.

With n new tokens after h held ones, prefill takes

    prefill(h, n) = n * token_s + n * (h + n / 2) * attention_s, floor_s at least

    FULL    P: latency + prefill(0, h + n), then D: handover + h * prompt_s
    PULL    P: latency + read of h + prefill(h, n), then D: handover + h * prompt_s
    DIRECT  D: latency + h * prompt_s + prefill(h, n), and what each of its steps takes besides;

and before it the work that is ahead at the engine. An engine renders, splits and hashes a whole
prompt before it computes any of it; at P that is part of its other terms. What n adds to it is left
out, lest it tell the ways apart.

Estimates of DIRECT rest on P's learned speed, times a factor that DIRECT turns teach: engines of a
pair are alike, and a way that was never chosen has to follow what is learned of the others. Where
the factor is 1 or more, DIRECT loses against PULL and FULL with every new token, which makes the
choice monotonic in their number. Below 1, D computes faster than P, and more tokens speak for it.

The gap of D's streams is a model of its own, learned from gaps: a step of the streams, and what new
tokens add to it. Without attention that is less than they take alone (RIDES).
"""

from dataclasses import dataclass

from disaggpair_router.way.backlog import Load, Stretch, Work, latency_of, work_of
from disaggpair_router.way.fit import Ewma, Fit, Parts, bounded
from disaggpair_router.way.tokens import MAX_TOKENS

RIDES = 0.65
"""Cost of a token that rides in a step with decoding, of its cost alone, attention not counted. A
step of 31 ms lasted 77 to 78 with 512 tokens, and 120 to 122 with 1,024: 46 and 90 ms, where they
take 66 and 133 alone, 11 and 23 of it attention to 8,000 tokens."""


@dataclass(frozen=True, slots=True)
class Prior:
    """Seconds before anything was observed.

    The defaults are a fit of chat turns through this router for a model of the shape of Qwen3-32B
    in bfloat16, TP 1, eager, on an H200, block 256 (docs/benchmarks.md, "Ways"). They need not fit
    other engines: what is observed corrects them.
    """

    token_s: float = 107.5e-6
    """One new token without attention: 9,300 a second."""
    attention_s: float = 2.7e-9
    """One new token's attention to one token before it: the slope of a new token is 129 µs after
    8,000 tokens, 172 µs after 24,000."""
    read_s: float = 3.3e-6
    """P's read of one token of history, and the work on its text: 92 ms for 24,000 tokens, 36 for
    8,000, of which the read itself is 20 and 7."""
    floor_s: float = 0.045
    """Least prefill: 128 new tokens take what some 350 do."""
    full_latency_s: float = 0.005
    """The rest of the P leg of FULL."""
    pull_latency_s: float = 0.015
    """The rest of the P leg of PULL."""
    prompt_s: float = 5e-6
    """What D needs for the text of one token before its first one: after 24,000 tokens it takes 75
    to 85 ms longer than after 8,000, by every way."""
    handover_s: float = 0.06
    """The rest from the end of the P leg to D's first token."""
    direct_latency_s: float = 0.017
    """The rest of DIRECT."""
    direct_step_s: float = 0.006
    """What a step of D takes besides its prefill, without streams: 16 steps of 512 tokens take 0.09
    s more than their prefill."""
    stream_step_s: float = 0.029
    """A decode step of D, less what each stream adds: the median gap of four was 31 ms."""
    stream_s: float = 0.5e-3
    """What each stream adds to a step: reading the KV of 8,000 tokens, 262 KB each, at 4.8 TB/s.
    It shows only where the GPU and not the host bounds a step: the median gap was 33 ms for three
    streams as for ten."""


H200 = Prior()


class Rates:
    """The estimates of one router for the pair it serves."""

    def __init__(self, prior: Prior = H200, *, step_tokens: int = 512) -> None:
        self._prior = prior
        self._step_tokens = step_tokens
        self._p = Fit("fixed", "floor", "read", "token", "attention")
        self._handover = Fit("fixed", "prompt")
        self._direct = Fit(
            *("fixed", "floor", "prompt", "token", "attention", "step"),
            at_most_1=("floor",),
        )
        self._gap = Fit("step", "stream", "token", "attention")
        self._p_work = Ewma(0.25, 0.001, 60.0)
        self._direct_work = Ewma(0.1, 0.001, 60.0)

    # -- estimates -----------------------------------------------------------------------------

    def full_s(self, held: int, new: int, prefill: Load) -> float:
        """Seconds to the first token of a turn whose whole prompt P computes."""
        leg = self._p.seconds(self._full_parts(held + new))
        return prefill.ahead_s + leg + self._handover.seconds(self._handover_parts(held))

    def pull_s(self, held: int, new: int, prefill: Load) -> float:
        """Seconds to the first token of a turn whose history P reads from D."""
        leg = self._p.seconds(self._pull_parts(held, new))
        return prefill.ahead_s + leg + self._handover.seconds(self._handover_parts(held))

    def direct_s(self, held: int, new: int, decode: Load) -> float:
        """Seconds to the first token of a turn whose new tokens D computes."""
        return decode.ahead_s + self._direct.seconds(self._direct_parts(held, new))

    def gap_s(self, held: int, new: int, decode: Load) -> float:
        """Longest gap of D's streams while D computes the tokens; 0 without streams."""
        if not decode.streams:
            return 0.0
        tokens = min(self._step_tokens, decode.ahead_tokens + new)
        return self._gap.seconds(self._gap_parts(held + new, tokens, decode.streams))

    @property
    def p_leg_s(self) -> float:
        """Average prefill of a P leg: what one of which nothing else is known may need."""
        return self._p_work.value

    @property
    def direct_leg_s(self) -> float:
        """Average prefill of a DIRECT turn at D."""
        return self._direct_work.value

    # -- what is sent and observed -------------------------------------------------------------

    def full_work(self, prompt: int) -> Work:
        """The P leg of FULL, for P's backlog. Tokens that P has in its own cache do not count."""
        return _work(self._p, self._full_parts(prompt), prompt)

    def pull_work(self, held: int, new: int) -> Work:
        """The P leg of PULL, for P's backlog."""
        return _work(self._p, self._pull_parts(held, new), new)

    def direct_work(self, held: int, new: int) -> Work:
        """A DIRECT turn, for D's backlog."""
        return _work(self._direct, self._direct_parts(held, new), new)

    def observe_prefill(self, stretch: Stretch) -> None:
        """P legs that P's backlog saw end."""
        self._p.observe(stretch.parts, stretch.seconds)
        self._p_work.observe(self._p.seconds(work_of(stretch.parts)))

    def observe_direct(self, stretch: Stretch) -> None:
        """DIRECT turns that D's backlog saw end, each at its first token."""
        self._direct.observe(stretch.parts, stretch.seconds)
        self._direct_work.observe(self._direct.seconds(work_of(stretch.parts)))

    def observe_handover(self, tokens: int, seconds: float) -> None:
        """The D leg of FULL or PULL up to its first token; `tokens` are those of the prompt."""
        self._handover.observe(self._handover_parts(tokens), seconds)

    def observe_gap(self, held: int, tokens: int, streams: int, seconds: float) -> None:
        """A gap of D's streams: the longest while D computed the tokens of one DIRECT turn.

        `tokens` are those of one step: the turn's new tokens, `step_tokens` at most. Without
        prefill they are 0, and any gap will do.
        """
        self._gap.observe(self._gap_parts(held + tokens, tokens, streams), seconds)

    # -- parts ---------------------------------------------------------------------------------

    def _prefill_parts(self, held: int, new: int) -> dict[str, float]:
        held, new = (int(bounded(tokens, 0, MAX_TOKENS)) for tokens in (held, new))
        return {
            "token": new * self._prior.token_s,
            "attention": new * (held + new / 2) * self._prior.attention_s,
        }

    def _full_parts(self, prompt: int) -> Parts:
        parts = self._floored(self._prefill_parts(0, prompt))
        return parts | {"fixed": self._prior.full_latency_s}

    def _pull_parts(self, held: int, new: int) -> Parts:
        parts = self._floored(self._prefill_parts(held, new))
        return parts | {"fixed": self._prior.pull_latency_s, "read": held * self._prior.read_s}

    def _handover_parts(self, tokens: int) -> Parts:
        return {"fixed": self._prior.handover_s, "prompt": self._prompt_s(tokens)}

    def _prompt_s(self, tokens: int) -> float:
        return bounded(tokens, 0, MAX_TOKENS) * self._prior.prompt_s

    def _gap_parts(self, before: int, tokens: int, streams: int) -> Parts:
        parts = self._prefill_parts(before, tokens)
        return {
            "step": self._prior.stream_step_s,
            "stream": self._prior.stream_s * streams,
            "token": parts["token"] * RIDES,
            "attention": parts["attention"],
        }

    def _floored(self, parts: dict[str, float]) -> dict[str, float]:
        floor = max(0.0, self._prior.floor_s - parts["token"] - parts["attention"])
        return parts | {"floor": floor}

    def _direct_parts(self, held: int, new: int) -> Parts:
        """Of a D like P, by P's learned speed."""
        parts = self._floored(self._prefill_parts(held, new))
        like_p = {name: self._p.multiplier(name) * part for name, part in parts.items()}
        return like_p | {
            "fixed": self._prior.direct_latency_s,
            "prompt": self._prompt_s(held),
            "step": new / self._step_tokens * self._prior.direct_step_s,
        }


def _work(fit: Fit, parts: Parts, tokens: int) -> Work:
    return Work(parts, fit.seconds(work_of(parts)), fit.seconds(latency_of(parts)), tokens)
