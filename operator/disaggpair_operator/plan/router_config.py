"""What the pair's router is told: its configuration file, in the router's own model."""

from disaggpair_operator import names
from disaggpair_operator.api.v1alpha1 import Spec
from disaggpair_operator.model import Owner
from disaggpair_operator.plan.engine_args import HTTP_PORT
from disaggpair_operator.plan.kv_transfer import LEASE_PORT, verifies_reads
from disaggpair_operator.plan.releases import Release
from disaggpair_router.config import (
    KVTransfer,
    LeaseAccess,
    PodEndpoints,
    RouterConfig,
    Timeouts,
)

API_PORT = 8000
METRICS_PORT = 9090


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
        fallback=spec.router.fallback,
        timeouts=Timeouts(drain_s=drain_s(spec)),
    )


def drain_s(spec: Spec) -> int:
    """Seconds that turns in flight have once a router was told to stop."""
    return max(1, spec.rollout.drain_seconds)
