"""Leases as the truth: what each D says that it holds, and the right to use it once.

With our connector the table of leases lives in D. A router copies it by listing and watching, so
a restart or another replica knows every conversation, and claims in D make a lease single-use over
all of them. `place`, `rows` and `board` are pure; `client` speaks HTTP, `follow` keeps the copies
current, `source` is what the legs of a turn use.
"""
