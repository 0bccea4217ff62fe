"""Conversations that do to a pair of real engines what clients, routers and accidents do.

`operations` and `malformed` plan turns from a seed, `runner` plays them on a pair by the wire
contract, `client` speaks to one engine, `distribution` compares what came back with a recompute,
`record` counts. `command` is `disaggpair-bed hostile`.
"""
