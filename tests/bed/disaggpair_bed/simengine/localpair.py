"""A pair of cores with our connector, and a core that is alone, for tests of what they say."""

from array import array
from typing import Any

from disaggpair_bed.simengine.core import EngineCore
from disaggpair_bed.simengine.decisions import TransferSettings
from disaggpair_bed.simengine.localnet import LocalNet, Result
from disaggpair_bed.simengine.twolegs import TURN_1
from disaggpair_connector.book import LeaseBook

Params = dict[str, Any]


def words(count: int, start: int = 1) -> "array[int]":
    """A prompt of different tokens."""
    return array("Q", range(start, start + count))


def history(prompt: "array[int]", answer: Result, more: int = 100) -> "array[int]":
    """The prompt of the next turn."""
    return prompt + array("Q", answer.tokens) + words(more, 900_000)


def with_ours(params: Params, **changes: Any) -> Params:
    """Parameters with changes in the object of our connector."""
    return {**params, "disaggpair": {**params["disaggpair"], **changes}}


class LocalPair:
    """A prefill and a decode engine on one net."""

    def __init__(self, decode_blocks: int = 200, ttl_s: float = 3600.0, **prefill: Any) -> None:
        self.net = LocalNet()
        settings = {"prefix_caching": False, "num_blocks": 200, **prefill}
        self.p = self.net.engine("P", pair="prefill", **settings)
        self.ttl_s = ttl_s
        self.d = self.new_decode(decode_blocks)
        self.alone = self.net.engine("alone", num_blocks=200, prefix_caching=False)

    def new_decode(self, blocks: int = 200) -> EngineCore:
        """Start D, anew if there is one."""
        transfer = TransferSettings(bidirectional=True, decode_ttl_s=self.ttl_s)
        self.d = self.net.engine("D", transfer, pair="decode", num_blocks=blocks + 1)
        return self.d

    @property
    def book(self) -> LeaseBook:
        """The leases of D."""
        return self.net.owners["D"].book

    def turn(
        self, prompt: "array[int]", handle: Params | None = None, *, max_tokens: int = 20
    ) -> Result:
        """Both legs of a turn."""
        first = self.net.ask(self.p, prompt, handle or TURN_1, max_tokens=1)
        assert first.params is not None
        return self.net.ask(self.d, prompt, first.params, max_tokens=max_tokens)

    def first_turn(self, count: int = 600, start: int = 1) -> tuple["array[int]", Params]:
        """A first turn: the next turn's prompt, and D's handle."""
        prompt = words(count, start)
        answer = self.turn(prompt)
        assert answer.params is not None
        return history(prompt, answer), answer.params

    def right(self, prompt: "array[int]", *, max_tokens: int = 20) -> list[int]:
        """What an engine says that read nothing."""
        return self.net.ask(self.alone, prompt, max_tokens=max_tokens).tokens

    def is_clean(self) -> bool:
        """No violation on either side, and on P no block that nobody needs."""
        self.net.pass_time(31)
        self.d.connector.settle()
        seen = [core.oracle.violations for core in (self.p, self.d)]
        return seen == [[], []] and self.p.pool.usage == 0
