"""The prefill and the decode role. Pure."""

from typing import Annotated

from pydantic import Field

from disaggpair_operator.api.rules import Part, Rule, given
from disaggpair_operator.api.v1alpha1.field_rules import owned_rules
from disaggpair_operator.api.v1alpha1.fields import Args, Env, Quantity, Resources

TENSOR_PARALLEL_SIZE = 8


class Role(Part):
    """One role's engines."""

    replicas: Annotated[int, Field(ge=1, le=64)] = 1
    """Engine pods of this role."""
    tensor_parallel_size: Annotated[int, Field(ge=1, le=64)] = TENSOR_PARALLEL_SIZE
    """GPUs one engine spreads its layers over."""
    gpus: Annotated[int, Field(ge=1, le=64)] | None = None
    """GPUs of each pod (resource nvidia.com/gpu). Default: tensorParallelSize."""
    prefix_caching: bool = True
    """The engine's own prefix cache. Off on prefill imitates a P that has evicted everything."""
    args: Args = []
    """More vLLM arguments for this role."""
    env: Env = []
    """More environment variables for this role."""
    resources: Resources = Resources()
    """CPU and memory of the engine. Default: none asked for."""
    shared_memory: Quantity = "16Gi"
    """Size of /dev/shm."""
    startup_seconds: Annotated[int, Field(ge=60, le=14_400)] = 2400
    """Seconds an engine may take until it first answers; loading a large model takes minutes."""
    pod_template: Annotated[
        dict[str, object] | None,
        Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True}),
    ] = None
    """Reserved: a patch of the pod template. Not yet supported."""


def _role_rules(where: str) -> tuple[Rule, ...]:
    """Rules of a role's part, which is at `where` in the object."""
    tensor_parallel_size = given("self.tensorParallelSize", TENSOR_PARALLEL_SIZE)
    return (
        *owned_rules(where),
        Rule(
            cel=f"!has(self.gpus) || self.gpus >= {tensor_parallel_size}",
            message=f"{where}.gpus must be at least {where}.tensorParallelSize",
            message_cel=(
                f"'{where}.gpus is %d, but must be at least %d, which is "
                f"{where}.tensorParallelSize'.format([self.gpus, {tensor_parallel_size}])"
            ),
            check=lambda self: self.gpus is None or self.gpus >= self.tensor_parallel_size,
            explain=lambda self: (
                f"{where}.gpus is {self.gpus}, but must be at least {self.tensor_parallel_size}, "
                f"which is {where}.tensorParallelSize"
            ),
            field_path=".gpus",
        ),
        Rule(
            cel="!has(self.podTemplate)",
            message=f"{where}.podTemplate is not yet supported by this version; remove it",
            check=lambda self: self.pod_template is None,
            field_path=".podTemplate",
        ),
    )


class Prefill(Role):
    """The prefill role P."""

    rules = _role_rules("spec.prefill")


class Decode(Role):
    """The decode role D."""

    rules = _role_rules("spec.decode")
