"""What the log tells of engines: a line whenever one becomes ready or unready, and why."""

import logging
from collections.abc import Collection

from disaggpair_router.pick import Endpoint

logger = logging.getLogger(__name__)


class Readiness:
    """Tells each change once. An engine that was not told of yet counts as changed."""

    def __init__(self) -> None:
        self._told: dict[str, Endpoint] = {}

    def tell(self, endpoint: Endpoint, why: str = "") -> None:
        """An engine is as `endpoint` says; `why` is the reason if it is not ready."""
        before = self._told.get(endpoint.name)
        self._told[endpoint.name] = endpoint
        if before is not None and before.ready == endpoint.ready:
            return
        if endpoint.ready:
            logger.info("the %s engine %s is ready", endpoint.role, endpoint.url)
        else:
            logger.warning("the %s engine %s is not ready: %s", endpoint.role, endpoint.url, why)

    def gone(self, name: str, why: str) -> None:
        """An engine is there no more; nothing is said of one that is not known."""
        before = self._told.pop(name, None)
        if before is not None:
            logger.info("the %s engine %s is gone: %s", before.role, before.url, why)

    def only(self, names: Collection[str], why: str) -> None:
        """All engines but these are gone."""
        for name in self._told.keys() - set(names):
            self.gone(name, why)
