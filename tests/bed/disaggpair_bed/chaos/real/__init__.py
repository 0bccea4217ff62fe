"""Real engines on the CPU and a router process that fail while clients talk.

`bench` starts them, `talk` is what clients send, `disturb` kills and stops, `judge` compares every
token that came back with a recompute, `run` puts them together. Counted by `chaos.record`.
"""
