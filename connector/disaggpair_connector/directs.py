"""Turns for D alone, whose claimed leases keep the history while they wait."""

from disaggpair_connector.book import LeaseBook
from disaggpair_connector.handle import Direct
from disaggpair_connector.lease import LeaseError
from disaggpair_connector.tally import Tally


class DirectTurns:
    """The direct turns of one engine that have not got their blocks.

    Args:
        book: the engine's leases.
        tally: what is counted for /metrics.
    """

    def __init__(self, book: LeaseBook, tally: Tally) -> None:
        self._book = book
        self._tally = tally
        self._leases: dict[str, str] = {}

    def begin(self, request_id: str, turn: Direct) -> None:
        """Keep the lease of a turn's history; one that cannot be had is counted."""
        if turn.lease is None or turn.token is None:
            return
        try:
            self._book.redeem_direct(turn.lease, turn.token)
        except LeaseError as error:
            self._tally.refused(error.code)
            return
        self._leases[request_id] = turn.lease

    def end(self, request_id: str) -> None:
        """The turn has its blocks, or is over without."""
        if (lease := self._leases.pop(request_id, None)) is not None:
            self._book.finish(lease, "direct")
