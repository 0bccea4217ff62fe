"""What becomes of a request that fails: its answer, and of one that was no turn, count and line.

A turn counts its error and writes its line itself (`seen.turns`). All else is told of here, so
that the id in any answer of an error is found in the log.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from disaggpair_router.apis.table import SHAPES
from disaggpair_router.errors import RouterError, error_head
from disaggpair_router.inbound.message import Answer, Head
from disaggpair_router.kv import Api
from disaggpair_router.metrics import Metrics
from disaggpair_router.request import request_id
from disaggpair_router.retries import RetryBudget
from disaggpair_router.turnlog import RequestRecord, log_request

logger = logging.getLogger(__name__)

COUNT_TOKENS: Final = "/v1/messages/count_tokens"
APIS: Final[Mapping[str, Api]] = {shape.path: api for api, shape in SHAPES.items()}
_ERRORS: Final[Mapping[str, Api]] = {**APIS, COUNT_TOKENS: "messages"}
"""In which API's shape a path has its errors."""
_LINES_PER_S: Final = 50.0


@dataclass(slots=True)
class Asked:
    """A request and what is known of it so far."""

    id: str
    """Its id, in answer and log."""
    head: Head | None
    """None when it could not be read."""
    tenant: str = ""
    is_told: bool = False
    """Its turn has begun, which counts and logs what becomes of it."""

    @classmethod
    def of(cls, head: Head | None) -> "Asked":
        """A request of which nothing but its head is known."""
        return cls(request_id(head.headers if head else {}), head)

    @property
    def api(self) -> Api | None:
        """Whose path it asks for."""
        return _ERRORS.get(self.head.path) if self.head else None

    @property
    def headers(self) -> dict[str, str]:
        """What every answer to it has."""
        return {"X-Request-Id": self.id}


class Failures:
    """Answers the requests of one router that fail.

    Args:
        metrics: where errors are counted.
        clock: seconds that only grow.
    """

    def __init__(self, metrics: Metrics, clock: Callable[[], float]) -> None:
        self._metrics = metrics
        self._lines = RetryBudget(_LINES_PER_S, clock)
        self._left_out = 0

    def answer(self, error: Exception, asked: Asked) -> Answer:
        """An exception as an answer, in the shape of the API that was asked for."""
        if not isinstance(error, RouterError):
            logger.error("a request failed", exc_info=error)
        status, headers = error_head(error)
        if not asked.is_told:
            code = error.code if isinstance(error, RouterError) else RouterError.code
            self._tell(asked, status, code)
        body = SHAPES[asked.api or "chat"].error_body(error, asked.id)
        return Answer(status, body, headers={**headers, **asked.headers})

    def _tell(self, asked: Asked, status: int, code: str) -> None:
        """Count it; a flood of such requests gets so many lines a second and no more."""
        asked.is_told = True
        self._metrics.errors.labels(code).inc()
        if not self._lines.take():
            self._left_out += 1
            return
        left_out, self._left_out = self._left_out, 0
        if left_out:
            logger.warning("%d requests that failed before a turn have no line", left_out)
        log_request(RequestRecord(asked.id, asked.api or "", asked.tenant, status, code))
