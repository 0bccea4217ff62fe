"""Load: engines that do no work, a generator of turns, and routers to compare.

Each is a process of its own, so that on a machine with few cores what is measured is the router.
`tests/load` holds the benchmarks that use them.
"""
