"""A vLLM engine without a model: the HTTP API, the KV cache and the NIXL pull connector.

What it answers is a function of the KV it really read, so KV of another prompt, of another
engine or of a block that was given away changes the text. The pure part (tokens, template,
pool, leases, decisions, core) takes the time as an argument and knows no socket; `engine` drives
it, `sidechannel` moves blocks between processes, `server` speaks HTTP. In a test:

    async with running_engine(role="prefill") as prefill:
        prefill.url
"""

from disaggpair_bed.simengine.server import RunningEngine, running_engine, watched_engines

__all__ = ["RunningEngine", "running_engine", "watched_engines"]
