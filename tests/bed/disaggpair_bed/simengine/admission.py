"""Whether a request gets blocks, for which the connector may give up leases."""

from disaggpair_bed.simengine.connector import PullConnector
from disaggpair_bed.simengine.job import Request
from disaggpair_bed.simengine.kvcache import KVCache
from disaggpair_bed.simengine.queues import Queues


class Admission:
    """Gives blocks as `KVCacheManager.allocate_slots` does with our connector around it."""

    def __init__(self, cache: KVCache, connector: PullConnector, queues: Queues) -> None:
        self._cache = cache
        self._connector = connector
        self._queues = queues

    def grow(self, request: Request, positions: int, least_free: int = 0) -> bool:
        """Blocks for so many positions, those of leases if need be.

        Args:
            request: it is given them.
            positions: in all.
            least_free: blocks that have to be free before.
        """
        while True:
            missing = max(self._cache.missing(request, positions), least_free)
            if missing <= self._cache.pool.free_blocks:
                self._connector.got_blocks()
                return self._cache.grow(request, positions)
            self._connector.missed_blocks()
            if not self._connector.give_up(missing):
                return False

    def admit(self, request: Request, positions: int, *, reads: bool) -> bool:
        """Blocks for a request that waits, whose prompt has to fit as a whole.

        One that reads gets none that others need who have begun: it would hold them until these
        have theirs.
        """
        least_free = self._cache.missing(request, len(request.tokens))
        if reads:
            others = (one for one in self._queues.begun if one is not request)
            begun = sum(self._cache.missing(one, len(one.tokens)) for one in others)
            least_free = max(least_free, begun + self._cache.missing(request, positions))
        return self.grow(request, positions, least_free)
