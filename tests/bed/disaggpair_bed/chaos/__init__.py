"""Engines and routers that fail while clients talk: what comes back is compared with the truth.

`bench` starts simulated engines, each D at an address of its own, and routers with leases. `talk`
decides from a seed what clients send, `client` sends it, `truth` says what the answer is,
`disturb` kills, freezes and breaks, `record` counts, `run` puts them together. `command` is
`disaggpair-bed chaos`.
"""
