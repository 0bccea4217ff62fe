"""From what is wanted and what was seen to the pair's status. Pure.

`next_status` is the way in; `unseen_status` is for when nothing could be seen, and `lacks_secrets`
reads back whether a status says that a Secret is missing.
"""

from disaggpair_operator.status.build import next_status, unseen_status
from disaggpair_operator.status.secrets import lacks_secrets

__all__ = ["lacks_secrets", "next_status", "unseen_status"]
