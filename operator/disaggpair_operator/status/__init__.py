"""From what is wanted and what was seen to the pair's status. Pure.

`next_status` is the only way in.
"""

from disaggpair_operator.status.build import next_status

__all__ = ["next_status"]
