"""How long work takes in one simulated engine."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Costs:
    """Time that work takes, in seconds; all 0 by default."""

    startup_s: float = 0.0
    prefill_tokens_per_s: float = 0.0
    """0: no time."""
    token_s: float = 0.0
    """One decode step, whatever the number of sequences in it."""
    transfer_block_s: float = 0.0
    transfer_bytes_per_s: float = 0.0
    """0: no time."""

    def step_s(self, prefill_tokens: int, decode_tokens: int) -> float:
        """Time of one step of the model."""
        prefill = prefill_tokens / self.prefill_tokens_per_s if self.prefill_tokens_per_s else 0.0
        return prefill + (self.token_s if decode_tokens else 0.0)

    def transfer_s(self, blocks: int, size: int) -> float:
        """Time of one read."""
        moving = size / self.transfer_bytes_per_s if self.transfer_bytes_per_s else 0.0
        return blocks * self.transfer_block_s + moving
