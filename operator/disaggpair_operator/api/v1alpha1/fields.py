"""Fields that several parts have: names, quantities, arguments, variables. Pure."""

from typing import Annotated

from pydantic import AfterValidator, Field

from disaggpair_operator.api.arguments import (
    OWNED_ARGUMENT_CEL,
    OWNED_VARIABLE_CEL,
    owned_arguments,
    owned_variables,
)
from disaggpair_operator.api.rules import Part, Rule

Name = Annotated[
    str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$")
]
LabelValue = Annotated[
    str,
    Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?$"),
]
Quantity = Annotated[
    str, Field(max_length=32, pattern=r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$")
]
Argument = Annotated[str, Field(min_length=1, max_length=2048)]

WORD = r"[^-\s]\S*"
"""Pattern of a value of the command line that cannot be read as a flag."""


class KeyRef(Part):
    """A key of a Secret in the pair's namespace."""

    name: Name
    """Name of the Secret."""
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
    """Key in the Secret."""


class EnvVar(Part):
    """One environment variable of an engine."""

    name: Annotated[
        str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z][-._a-zA-Z0-9]*$")
    ]
    """Name of the variable."""
    value: Annotated[str, Field(max_length=4096)] = ""
    """Value of the variable."""
    secret_key_ref: KeyRef | None = None
    """Take the value from a Secret instead."""

    rules = (
        Rule(
            cel="!(has(self.secretKeyRef) && has(self.value) && self.value != '')",
            message="an entry of env has either value or secretKeyRef, not both",
            check=lambda self: self.secret_key_ref is None or not self.value,
        ),
    )


def _once_each(env: list[EnvVar]) -> list[EnvVar]:
    """Refuse a repeated name, as the API server does for a list that is a map."""
    names = [entry.name for entry in env]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"names {', '.join(repeated)} more than once; each variable is set once")
    return env


Args = Annotated[list[Argument], Field(max_length=64)]
Env = Annotated[
    list[EnvVar],
    AfterValidator(_once_each),
    Field(
        max_length=64,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    ),
]


_RENDERED = "the operator renders it for both roles from spec.model, spec.kvTransfer and the role"
_SET = "the operator sets it on both roles"


def owned_rules(where: str) -> tuple[Rule, ...]:
    """Rules that keep the operator's own engine arguments and variables out of a part."""
    return (
        Rule(
            cel=f"!has(self.args) || self.args.all(a, !({OWNED_ARGUMENT_CEL}))",
            message=(
                f"{where}.args must not set KV transfer, model, bind address, parallelism, prefix "
                f"caching or block size: {_RENDERED}"
            ),
            check=lambda self: not owned_arguments(self.args),
            explain=lambda self: (
                f"{where}.args must not set {', '.join(owned_arguments(self.args))}: {_RENDERED}"
            ),
            field_path=".args",
        ),
        Rule(
            cel=f"!has(self.env) || self.env.all(e, !({OWNED_VARIABLE_CEL}))",
            message=(
                f"{where}.env must not set VLLM_NIXL_*, FI_PROVIDER, POD_IP, VLLM_HOST_IP or "
                f"VLLM_CONFIG_ROOT: {_SET}"
            ),
            check=lambda self: not owned_variables(_names(self.env)),
            explain=lambda self: (
                f"{where}.env must not set {', '.join(owned_variables(_names(self.env)))}: {_SET}"
            ),
            field_path=".env",
        ),
    )


def _names(env: list[EnvVar]) -> list[str]:
    return [entry.name for entry in env]


class Resources(Part):
    """CPU and memory of a container, requested and limited alike."""

    cpu: Quantity | None = None
    """CPUs, such as 8 or 500m."""
    memory: Quantity | None = None
    """Memory, such as 64Gi. A memory-backed /dev/shm counts against it."""
