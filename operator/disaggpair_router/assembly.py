"""Which part gets which: builds one router's objects from its configuration. Starts nothing."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from disaggpair_router.app import Routes
from disaggpair_router.canary import Canary
from disaggpair_router.config import RouterConfig
from disaggpair_router.conversation import Keys
from disaggpair_router.decode import DecodeLeg
from disaggpair_router.door import Door
from disaggpair_router.endpoints import Endpoints
from disaggpair_router.environment import Environment
from disaggpair_router.failures import Failures
from disaggpair_router.guard.checks import Guard
from disaggpair_router.handleturn import HandleKV
from disaggpair_router.held import HeldKV
from disaggpair_router.leases.assembly import leases_of
from disaggpair_router.metrics import Metrics
from disaggpair_router.plan import FixedPlans
from disaggpair_router.plans import ChosenPlans
from disaggpair_router.prefill import PrefillLeg
from disaggpair_router.release import Releases
from disaggpair_router.request import RequestReader
from disaggpair_router.retries import RetryBudget
from disaggpair_router.running import Running
from disaggpair_router.seen.debug import DebugPage
from disaggpair_router.seen.state import show_state
from disaggpair_router.seen.tracing import NoTracer
from disaggpair_router.session import Conversations
from disaggpair_router.tenants import Tenants, networks
from disaggpair_router.turn import Turns
from disaggpair_router.upstream import Engines

_MEMORY_S = 3_600.0
"""How long the reason is known why a conversation has no handle."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The objects of one router."""

    engines: Engines
    endpoints: Endpoints
    held: HeldKV
    canary: Canary
    metrics: Metrics
    running: Running
    routes: Routes
    guard: Guard
    debug: DebugPage | None
    """None when it is switched off."""


def assemble(config: RouterConfig, clock: Callable[[], float], environment: Environment) -> Parts:
    """All parts of a router; `engines` has to be entered before the first turn."""
    metrics = Metrics()
    running = Running(max_abandoned=config.limits.max_abandoned)
    keys = Keys(environment.conversation_secret)
    door = Door(
        _tenants(config),
        keys,
        engine_key=environment.engine_key,
        refused=lambda why: metrics.refusals.labels(why).inc(),
    )
    engines = Engines(
        connect_s=config.timeouts.connect_s,
        own_key=bool(environment.engine_key) or not door.tenants.is_open,
    )
    endpoints = Endpoints(
        revision=config.revision,
        single_engine=config.fallback == "SingleEngine",
        metrics=metrics,
        clock=clock,
        max_imbalance=config.max_imbalance,
    )
    retries = RetryBudget(config.limits.retries_per_s, clock)
    held: HeldKV
    if config.kv.leases and config.kv.bidirectional:
        held = leases_of(config.kv, config.kv.leases, endpoints, metrics, environment, clock)
    else:
        held = _handles(config, engines, endpoints, metrics, clock)
    guard = Guard(
        config.guard,
        engines=engines,
        endpoints=endpoints,
        metrics=metrics,
        random=Random(),  # noqa: S311 - draws a sample
    )
    turns = Turns(
        prefill=PrefillLeg(
            engines=engines,
            endpoints=endpoints,
            retries=retries,
            limit_s=config.timeouts.prefill_s,
            clock=clock,
        ),
        decode=DecodeLeg(
            engines=engines,
            endpoints=endpoints,
            timeouts=config.timeouts,
            limits=config.limits,
        ),
        held=held,
        plans=ChosenPlans(config.way, metrics=metrics, clock=clock) if config.way else FixedPlans(),
        retries=retries,
        endpoints=endpoints,
        metrics=metrics,
        tracer=NoTracer(),
        guard=guard,
        clock=clock,
    )
    show_state(metrics, endpoints=endpoints, held=held, running=running)
    routes = Routes(
        door=door,
        failures=Failures(metrics, clock),
        reader=RequestReader(
            config.conversation_headers,
            keys=keys,
            bidirectional=config.kv.bidirectional,
            way_header=config.way.header if config.way else "",
            verified_reads=config.kv.verified_reads or config.kv.leases is not None,
            finds_untold=config.kv.leases is not None,
        ),
        turns=turns,
        engines=engines,
        endpoints=endpoints,
        running=running,
        keepalive_s=config.timeouts.keepalive_s,
        max_body_bytes=config.limits.max_body_bytes,
        max_turns=config.limits.max_turns,
        tokenize=config.tokenize,
    )
    canary = Canary(
        engines=engines,
        endpoints=endpoints,
        headers={"authorization": f"Bearer {key}"} if (key := environment.engine_key) else {},
        every_s=config.timeouts.canary_s,
        limit_s=config.timeouts.canary_limit_s,
        clock=clock,
    )
    debug = None
    if config.debug_port is not None:
        debug = DebugPage(endpoints=endpoints, held=held, clock=clock)
    return Parts(engines, endpoints, held, canary, metrics, running, routes, guard, debug)


def _handles(
    config: RouterConfig,
    engines: Engines,
    endpoints: Endpoints,
    metrics: Metrics,
    clock: Callable[[], float],
) -> HandleKV:
    table = Conversations(
        max_entries=config.limits.max_conversations,
        max_bytes=config.limits.max_handle_bytes,
        memory_s=_MEMORY_S,
        max_tokens=config.kv.max_held_tokens,
    )
    endpoints.on_loss(lambda name, incarnation: table.forget_holder(name, but=incarnation))
    metrics.handles.set_function(lambda: table.handles)
    releases = Releases(
        engines=engines,
        endpoints=endpoints,
        metrics=metrics,
        per_s=config.kv.releases_per_s if config.kv.bidirectional else 0,
    )
    return HandleKV(table, config=config.kv, endpoints=endpoints, releases=releases, clock=clock)


def _tenants(config: RouterConfig) -> Tenants:
    """The tenants before their keys are read: nobody's key is good."""
    return Tenants(
        digests={} if config.tenants.directory else None,
        header=config.tenants.header,
        trusted=networks(config.tenants.trusted_proxies),
    )
