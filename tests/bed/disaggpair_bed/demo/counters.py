"""Where a prefill engine's prompt tokens came from, read from its own metrics."""

import re
import urllib.request
from dataclasses import dataclass

_SOURCES = re.compile(
    r'^vllm:prompt_tokens_by_source_total\{[^}]*source="(?P<source>\w+)"[^}]*\} (?P<value>\S+)',
    re.MULTILINE,
)


@dataclass(frozen=True)
class PromptTokens:
    """Counts of `vllm:prompt_tokens_by_source_total`, every release since 0.19."""

    computed: int = 0
    """Computed by the engine (local_compute)."""
    cached: int = 0
    """From the engine's own prefix cache (local_cache_hit)."""
    read: int = 0
    """Read from another engine (external_kv_transfer)."""

    def since(self, before: "PromptTokens") -> "PromptTokens":
        """What was added after `before`."""
        return PromptTokens(
            self.computed - before.computed, self.cached - before.cached, self.read - before.read
        )


def parse(text: str) -> PromptTokens:
    """The counts in a page of Prometheus text; sources that are absent count as 0."""
    found = {match["source"]: int(float(match["value"])) for match in _SOURCES.finditer(text)}
    return PromptTokens(
        computed=found.get("local_compute", 0),
        cached=found.get("local_cache_hit", 0),
        read=found.get("external_kv_transfer", 0),
    )


def prompt_tokens(engine_url: str, timeout_s: float = 30.0) -> PromptTokens:
    """The counts of one engine now."""
    with urllib.request.urlopen(f"{engine_url}/metrics", timeout=timeout_s) as answer:
        return parse(answer.read().decode())
