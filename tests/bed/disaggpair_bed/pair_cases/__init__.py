"""Good and wrong DisaggPairs, for every place that accepts or refuses them.

The contract tests feed the table to the models, the cluster tests feed it to a real API server: an
object is right for both or for none, and both name the same field.
"""

from typing import Final

from disaggpair_bed.pair_cases.accepted import ACCEPTED
from disaggpair_bed.pair_cases.case import Case
from disaggpair_bed.pair_cases.owned import OWNED
from disaggpair_bed.pair_cases.refused import REFUSED

__all__ = ["ACCEPTED", "CASES", "OWNED", "REFUSED", "Case"]

CASES: Final = (*ACCEPTED, *REFUSED, *OWNED)
