"""What the pair's router is told: its configuration file, in the router's own model."""

from ipaddress import ip_network

from disaggpair_operator import names
from disaggpair_operator.api.v1alpha1 import Auth, Spec
from disaggpair_operator.api.v1alpha1 import KVTransfer as Transfer
from disaggpair_operator.model import Owner
from disaggpair_operator.plan.engine_args import HTTP_PORT
from disaggpair_operator.plan.kv_transfer import LEASE_PORT, verifies_reads
from disaggpair_operator.plan.releases import Release
from disaggpair_router.config import (
    KVTransfer,
    LeaseAccess,
    PodEndpoints,
    RouterConfig,
    Tenants,
    Timeouts,
    WayConfig,
)

API_PORT = 8000
METRICS_PORT = 9090
TENANTS_FOLDER = "/etc/disaggpair-tenants"
"""Where a router finds the digests of API keys."""


def router_config(owner: Owner, spec: Spec, release: Release) -> RouterConfig:
    """What the pair's router is told."""
    return RouterConfig(
        pair=owner.name,
        port=API_PORT,
        metrics_port=METRICS_PORT,
        endpoints=PodEndpoints(
            namespace=owner.namespace, pair=names.label_value(owner.name), port=HTTP_PORT
        ),
        kv=KVTransfer(
            bidirectional=spec.kv_transfer.bidirectional,
            handle_in_stream=release.handle_in_stream,
            handle_ttl_s=spec.router.handle_ttl_seconds,
            decode_ttl_s=spec.kv_transfer.decode_ttl_seconds,
            leases=LeaseAccess(port=LEASE_PORT) if verifies_reads(spec) else None,
            verified_reads=verifies_reads(spec),
        ),
        way=_way(spec.kv_transfer),
        fallback=spec.router.fallback,
        tenants=_tenants(spec.router.auth),
        timeouts=Timeouts(drain_s=drain_s(spec)),
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
        # The router takes no address within a network for the network.
        trusted_proxies=tuple(
            str(ip_network(network, strict=False)) for network in auth.trusted_proxies
        ),
    )


def drain_s(spec: Spec) -> int:
    """Seconds that turns in flight have once a router was told to stop."""
    return max(1, spec.rollout.drain_seconds)
