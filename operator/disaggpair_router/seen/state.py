"""What is true of the router at the moment of a scrape: engines, leases, listeners, pauses."""

from collections.abc import Callable
from typing import get_args

from disaggpair_router.endpoints import Endpoints
from disaggpair_router.held import HeldKV
from disaggpair_router.metrics import EngineState, ListenerState, Metrics
from disaggpair_router.pick import Endpoint, Role
from disaggpair_router.running import Running


def engine_state(endpoints: Endpoints, endpoint: Endpoint) -> EngineState:
    """Whether an engine gets turns, and if not, why."""
    if not endpoint.ready:
        return "unready"
    if endpoints.is_stuck(endpoint):
        return "stuck"
    if endpoints.is_suspect(endpoint):
        return "suspect"
    return "busy" if endpoints.is_busy(endpoint) else "ready"


def show_state(metrics: Metrics, *, endpoints: Endpoints, held: HeldKV, running: Running) -> None:
    """Let the gauges tell the present state of these objects whenever they are read."""
    roles: tuple[Role, ...] = get_args(Role)
    for role in roles:
        for state in get_args(EngineState):
            gauge = metrics.engines.labels(role, state)
            gauge.set_function(_engines(endpoints, role, state))
    listening: dict[ListenerState, bool] = {"followed": True, "silent": False}
    for word, answers in listening.items():
        metrics.listeners.labels(word).set_function(_listeners(held, answers=answers))
    metrics.pauses.set_function(lambda: len(held.pauses()))
    metrics.abandoned.set_function(lambda: running.abandoned)


def _engines(endpoints: Endpoints, role: Role, state: EngineState) -> Callable[[], float]:
    return lambda: sum(
        one.role == role and engine_state(endpoints, one) == state for one in endpoints
    )


def _listeners(held: HeldKV, *, answers: bool) -> Callable[[], float]:
    return lambda: sum(one is answers for one in held.listeners().values())
