"""From what is wanted and what was seen to the pair's status. Pure.

`next_status` is the way in; `unseen_status` is for when nothing could be seen.
"""

from disaggpair_operator.status.build import next_status, unseen_status

__all__ = ["next_status", "unseen_status"]
