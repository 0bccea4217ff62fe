"""The way into the plan: one pair to everything that should exist for it."""

from disaggpair_operator import names
from disaggpair_operator.api.v1alpha1 import DisaggPair
from disaggpair_operator.model import Facts, Owner, Plan
from disaggpair_operator.plan.keys import key_secrets
from disaggpair_operator.plan.kv_transfer import RoleName
from disaggpair_operator.plan.policy import disruption_budget, engine_policy
from disaggpair_operator.plan.references import secret_uses
from disaggpair_operator.plan.releases import choose_release
from disaggpair_operator.plan.revision import revision
from disaggpair_operator.plan.role import role_deployment, role_service
from disaggpair_operator.plan.router import router_objects

_ROLES: tuple[RoleName, ...] = ("prefill", "decode")


def desired(pair: DisaggPair, owner: Owner, facts: Facts) -> Plan:
    """Objects for the pair, in the order of application: what others refer to comes first.

    The same input gives the same plan.

    Raises:
        UnsupportedEngine: the engine cannot do what the pair asks for.
    """
    spec = pair.spec
    choice = choose_release(spec)
    release = choice.release
    shared = revision(spec, release)
    objects = [engine_policy(owner, spec)]
    for role in _ROLES:
        objects += [
            disruption_budget(owner, role),
            role_service(owner, role),
            role_deployment(owner, spec, release, shared, facts, role),
        ]
    objects += router_objects(owner, spec, release, facts)
    return Plan(
        revision=shared,
        objects=tuple(objects),
        secrets=key_secrets(owner, spec),
        uses=secret_uses(spec),
        endpoint=_endpoint(owner, spec.router.service.port),
        risk=choice.risk,
    )


def _endpoint(owner: Owner, port: int) -> str:
    service = names.child_name(owner.name, names.ROUTER)
    return f"http://{service}.{owner.namespace}.svc:{port}/v1"
