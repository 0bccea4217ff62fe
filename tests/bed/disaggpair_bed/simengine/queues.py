"""Where the requests of one core are: waiting, running, or parked while KV is on its way."""

from collections import deque
from dataclasses import dataclass, field

from disaggpair_bed.simengine.job import Request


@dataclass
class Queues:
    """All requests of one core that are not over."""

    waiting: deque[Request] = field(default_factory=deque)
    running: list[Request] = field(default_factory=list)
    parked: dict[str, Request] = field(default_factory=dict)
    reading: set[str] = field(default_factory=set)
    """Requests with a read in flight."""
    aborted_while_parked: dict[str, Request] = field(default_factory=dict)

    def take(self, request_id: str) -> Request | None:
        """Take out a request that waits or runs."""
        for queue in (self.waiting, self.running):
            for request in queue:
                if request.id == request_id:
                    queue.remove(request)
                    return request
        return None

    @property
    def all(self) -> list[Request]:
        """Every request that may hold blocks."""
        parked = (*self.parked.values(), *self.aborted_while_parked.values())
        return [*self.waiting, *self.running, *parked]

    @property
    def begun(self) -> list[Request]:
        """Requests that have some of the blocks of their prompts."""
        parked = self.parked.values()
        waiting = (request for request in self.waiting if request.computed)
        running = (one for one in self.running if one.computed < one.prompt_tokens)
        return [*parked, *waiting, *running]

    @property
    def stuck(self) -> list[str]:
        """Requests that wait for KV which nobody fetches: for ever, as in vLLM."""
        parked = (*self.parked, *self.aborted_while_parked)
        return [request_id for request_id in parked if request_id not in self.reading]
