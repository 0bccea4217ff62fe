"""Fields that several parts have: names, quantities, arguments, variables. Pure.

The patterns and bounds are those of Kubernetes, so that what is accepted here is not refused when
the pair's objects are applied. They hold ASCII classes only: the models' expressions and the API
server's differ in which other white space and digits there are.
"""

from collections import Counter
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from disaggpair_operator.api.rules import Part, Rule

_PART: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN: Final = rf"{_PART}(\.{_PART})*"
_VALUE: Final = r"[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?"
_KEY_NAME: Final = r"[A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?"
LABEL_KEY: Final = rf"({SUBDOMAIN}/)?{_KEY_NAME}"
MAX_PREFIX: Final = 253
MAX_KEY: Final = MAX_PREFIX + len("/") + 63

Name = Annotated[str, Field(min_length=1, max_length=253, pattern=f"^{SUBDOMAIN}$")]
LabelValue = Annotated[str, Field(min_length=1, max_length=63, pattern=f"^{_VALUE}$")]
OptionalLabelValue = Annotated[str, Field(max_length=63, pattern=f"^$|^{_VALUE}$")]
OptionalLabelKey = Annotated[str, Field(max_length=MAX_KEY, pattern=f"^$|^{LABEL_KEY}$")]
Quantity = Annotated[
    str, Field(max_length=32, pattern=r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$")
]
Argument = Annotated[str, Field(min_length=1, max_length=2048)]

WORD: Final = "[!-,.-~][!-~]*"
"""Pattern of a value of the command line that cannot be read as a flag: printable ASCII."""


class SecretRef(Part):
    """A Secret in the pair's namespace."""

    name: Name
    """Name of the Secret."""


class KeyRef(Part):
    """A key of a Secret in the pair's namespace."""

    name: Name
    """Name of the Secret."""
    key: Annotated[
        str, Field(min_length=1, max_length=253, pattern=r"^\.?[-_a-zA-Z0-9][-._a-zA-Z0-9]*$")
    ]
    """Key in the Secret."""


class EnvVar(Part):
    """One environment variable of an engine.

    In `value`, unlike in arguments, Kubernetes may replace `$(NAME)`: what it puts there is another
    variable of the same container, so the value tells the engine nothing that it does not have, be
    that one's value from a Secret. Whoever writes a pair may name any Secret of its namespace.
    """

    name: Annotated[
        str,
        Field(
            min_length=1,
            max_length=253,
            pattern=r"^(\.[-_a-zA-Z0-9]|[-_a-zA-Z])[-._a-zA-Z0-9]*$",
        ),
    ]
    """Name of the variable."""
    value: Annotated[str, Field(max_length=4096)] = ""
    """Value of the variable. Kubernetes replaces $(NAME) by another variable's value."""
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
    repeated = sorted(
        name for name, times in Counter(entry.name for entry in env).items() if times > 1
    )
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


class Resources(Part):
    """CPU and memory of a container, requested and limited alike."""

    cpu: Quantity | None = None
    """CPUs, such as 8 or 500m."""
    memory: Quantity | None = None
    """Memory, such as 64Gi. A memory-backed /dev/shm counts against it."""
