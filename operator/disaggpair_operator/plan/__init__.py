"""From a pair to the objects it needs. Pure: no clock, environment, randomness or cluster.

`desired` is the only way in. Each module builds one kind of thing and never changes its input.
"""

from disaggpair_operator.plan.desired import desired
from disaggpair_operator.plan.releases import UnsupportedEngine

__all__ = ["UnsupportedEngine", "desired"]
