"""What the pair's router is told: its configuration file, in the router's own model."""

import json
from typing import Any, Final

from disaggpair_operator import names
from disaggpair_operator.api.v1alpha1 import Auth, Guard, RouterLimits, RouterTimeouts, Spec
from disaggpair_operator.api.v1alpha1 import KVTransfer as Transfer
from disaggpair_operator.api.v1alpha1 import Tracing as Traces
from disaggpair_operator.api.v1alpha1.observing import MILLION
from disaggpair_operator.model import Owner
from disaggpair_operator.plan.engine_args import HTTP_PORT
from disaggpair_operator.plan.kv_transfer import LEASE_PORT, verifies_reads
from disaggpair_operator.plan.releases import Release
from disaggpair_router.config import (
    GuardConfig,
    KVTransfer,
    LeaseAccess,
    Limits,
    PodEndpoints,
    RouterConfig,
    Tenants,
    Timeouts,
    Tracing,
    WayConfig,
)

API_PORT: Final = 8000
METRICS_PORT: Final = 9090
DEBUG_PORT: Final = 9091
"""Of a router pod's loopback interface."""
TENANTS_FOLDER: Final = "/etc/disaggpair-tenants"
"""Where a router finds the digests of API keys."""


def router_file(owner: Owner, spec: Spec, release: Release) -> str:
    """Text of the router's configuration file.

    It holds what differs from the router's own defaults, so that a new default, or a new field,
    changes no file and replaces no router whose image stays.
    """
    config = router_config(owner, spec, release)
    fields = _with_whole_numbers(config.model_dump(mode="json", exclude_defaults=True))
    # The word that tells the kinds of endpoints apart is needed though it is each kind's default.
    fields["endpoints"] = {"kind": config.endpoints.kind, **fields["endpoints"]}
    return json.dumps(fields, indent=2) + "\n"


def _with_whole_numbers(value: Any) -> Any:
    """`value` with 450.0 as 450."""
    if isinstance(value, dict):
        return {name: _with_whole_numbers(below) for name, below in value.items()}
    if isinstance(value, list):
        return [_with_whole_numbers(below) for below in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def router_config(owner: Owner, spec: Spec, release: Release) -> RouterConfig:
    """What the pair's router is told."""
    router = spec.router
    return RouterConfig(
        pair=owner.name,
        port=API_PORT,
        metrics_port=METRICS_PORT,
        debug_port=DEBUG_PORT if router.debug else None,
        endpoints=PodEndpoints(
            namespace=owner.namespace, pair=names.label_value(owner.name), port=HTTP_PORT
        ),
        kv=KVTransfer(
            bidirectional=spec.kv_transfer.bidirectional,
            handle_in_stream=release.handle_in_stream,
            handle_ttl_s=router.handle_ttl_seconds,
            decode_ttl_s=spec.kv_transfer.decode_ttl_seconds,
            leases=LeaseAccess(port=LEASE_PORT) if verifies_reads(spec) else None,
            verified_reads=verifies_reads(spec),
            max_held_tokens=router.limits.max_held_tokens,
        ),
        way=_way(spec.kv_transfer),
        fallback=router.fallback,
        max_imbalance=router.max_imbalance,
        conversation_headers=tuple(router.conversation_headers),
        workers=router.workers,
        tokenize=router.tokenize,
        tenants=_tenants(router.auth),
        timeouts=_timeouts(router.timeouts, drain_s(spec)),
        limits=_limits(router.limits),
        guard=_guard(router.guard),
        tracing=_tracing(router.tracing),
    )


def _way(transfer: Transfer) -> WayConfig | None:
    """How turns are run where D may compute their new tokens."""
    direct = transfer.direct_turns
    if direct is None:
        return None
    return WayConfig(
        max_new_tokens=direct.max_new_tokens,
        step_tokens=direct.step_tokens,
        gap_budget_s=direct.max_gap_milliseconds / 1000,
        min_pull_tokens=transfer.recompute_threshold_tokens,
    )


def _tenants(auth: Auth | None) -> Tenants:
    """Who may use the pair; everybody without `auth`."""
    if auth is None:
        return Tenants()
    return Tenants(
        directory=TENANTS_FOLDER if auth.api_keys_secret_ref else "",
        header=auth.tenant_header,
        trusted_proxies=tuple(auth.trusted_proxies),
    )


def _timeouts(timeouts: RouterTimeouts, drain_s: int) -> Timeouts:
    return Timeouts(
        prefill_s=timeouts.prefill_seconds,
        decode_first_byte_s=timeouts.decode_first_byte_seconds,
        decode_idle_s=timeouts.decode_idle_seconds,
        keepalive_s=timeouts.keepalive_seconds,
        canary_s=timeouts.canary_seconds,
        canary_limit_s=timeouts.canary_limit_seconds,
        stalled_client_s=timeouts.stalled_client_seconds,
        drain_s=drain_s,
    )


def _limits(limits: RouterLimits) -> Limits:
    return Limits(
        max_body_bytes=limits.max_body_bytes,
        max_request_bytes=limits.max_request_bytes,
        max_turns=limits.max_turns,
        max_conversations=limits.max_conversations,
        max_handle_bytes=limits.max_handle_bytes,
        max_answer_bytes=limits.max_answer_bytes,
        max_abandoned=limits.max_abandoned,
        retries_per_s=limits.retries_per_second,
    )


def _guard(guard: Guard | None) -> GuardConfig:
    if guard is None:
        return GuardConfig()
    return GuardConfig(
        sample=guard.sampling_rate_per_million / MILLION, tolerance=guard.tolerance_percent / 100
    )


def _tracing(traces: Traces | None) -> Tracing | None:
    if traces is None:
        return None
    return Tracing(
        endpoint=traces.endpoint, sample_ratio=traces.sampling_rate_per_million / MILLION
    )


def drain_s(spec: Spec) -> int:
    """Seconds that turns in flight have once a router was told to stop."""
    return max(1, spec.rollout.drain_seconds)
