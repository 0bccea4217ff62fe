"""How long work takes in one simulated engine: nothing by default.

A step of the model takes

    prefill tokens / rate + attended * history_s + one decode step, if anything decodes

where `attended` is the sum of the positions of the prefill tokens, so a token costs more the longer
the history before it is. A long prompt therefore holds up those that decode beside it, for as long
as the tokens of a step (`--max-num-batched-tokens`) take.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Costs:
    """Time that work takes, in seconds; all 0 by default."""

    startup_s: float = 0.0
    request_s: float = 0.0
    """From the arrival of a request to its core: reading, template, tokenizer."""
    prefill_tokens_per_s: float = 0.0
    """0: no time."""
    prefill_history_s: float = 0.0
    """What a prefill token takes longer for each token before it."""
    token_s: float = 0.0
    """One decode step, whatever the number of sequences in it."""
    transfer_token_s: float = 0.0
    transfer_block_s: float = 0.0
    transfer_bytes_per_s: float = 0.0
    """0: no time."""
    scale: float = 1.0
    """Factor of all times but the start-up; 0.1 for ten times as fast."""

    def arrival_s(self) -> float:
        """Time before a request reaches its core."""
        return self.scale * self.request_s

    def step_s(self, prefill_tokens: int, decode_tokens: int, attended: int = 0) -> float:
        """Time of one step of the model."""
        prefill = prefill_tokens / self.prefill_tokens_per_s if self.prefill_tokens_per_s else 0.0
        prefill += attended * self.prefill_history_s
        return self.scale * (prefill + (self.token_s if decode_tokens else 0.0))

    def transfer_s(self, blocks: int, size: int, tokens: int) -> float:
        """Time of one read."""
        moving = size / self.transfer_bytes_per_s if self.transfer_bytes_per_s else 0.0
        moving += blocks * self.transfer_block_s + tokens * self.transfer_token_s
        return self.scale * moving


MEASURED: Final = {
    "none": Costs(),
    # vLLM 0.25.1, a model of the shape of Qwen3-32B, one H200 for each role, no tensor parallelism,
    # eager, blocks of 128 tokens. The step is the gap between tokens of four streams.
    "h200-32b": Costs(
        request_s=0.045,
        prefill_tokens_per_s=8400,
        prefill_history_s=2.6e-9,
        token_s=0.031,
        transfer_token_s=4.7e-6,
    ),
}
"""Sets of costs by name."""
