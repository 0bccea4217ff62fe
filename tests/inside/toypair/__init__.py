"""A pair of engines in one process: vLLM's schedulers and workers, ours in their places, no model.

Runs in the engines' interpreter only. What is vLLM's own: the engine core with its step loops, the
scheduler, the block pool, the connector's factory, the NIXL worker with its handshake. What is a
toy: the model (`model`), the transport (`transport`) and time (`clock`).
"""
