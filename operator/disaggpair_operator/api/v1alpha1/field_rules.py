"""Rules that several parts have: owned and replaced arguments, owned variables, keys. Pure."""

import re
from collections.abc import Iterable
from typing import Final

from disaggpair_operator.api.arguments import (
    EXPANSION,
    OWNED_ARGUMENT_CEL,
    OWNED_VARIABLE_CEL,
    expanded,
    expansion_cel,
    owned_arguments,
    owned_variables,
)
from disaggpair_operator.api.rules import Rule
from disaggpair_operator.api.text import shown
from disaggpair_operator.api.v1alpha1.fields import LABEL_KEY, MAX_KEY, MAX_PREFIX, EnvVar

_RENDERED = "the operator renders it for both roles from spec.model, spec.kvTransfer and the role"
_SET = "the operator sets it on both roles"
_REPLACED: Final = "Kubernetes would replace $(NAME) by the value of that variable"
_INSTEAD: Final = "write the value itself, or use env for what vLLM reads from its environment"


def word_rule(path: str, field: str) -> Rule:
    """Rule that Kubernetes replaces nothing in the text `field`, which is at `path`.

    The last step of `path` is the field's name outside.
    """
    name = path.rpartition(".")[2]
    return Rule(
        cel=f"!has(self.{name}) || !{expansion_cel(f'self.{name}')}",
        message=f"{path} must not contain {EXPANSION}: {_REPLACED}; write the value itself",
        check=lambda self: not expanded([getattr(self, field)]),
        field_path=f".{name}",
    )


def key_rule(path: str, field: str, kind: str) -> Rule:
    """Rule that the keys of the map `field`, which is at `path`, are keys of labels or annotations.

    The prefix of an annotation's key may have capital letters.
    """
    name = path.rpartition(".")[2]
    pattern = LABEL_KEY if kind == "label" else LABEL_KEY.replace("a-z0-9", "A-Za-z0-9")
    allowed = (
        f"is no {kind} key: up to 63 letters, digits, dashes, dots and underscores, "
        "with a letter or digit at both ends, after a DNS name and / or without"
    )

    def wrong(self: object) -> list[str]:
        return [key for key in getattr(self, field) if not _is_key(key, pattern)]

    return Rule(
        cel=(
            f"!has(self.{name}) || self.{name}.all(k, k.size() <= {MAX_KEY} && "
            f"k.indexOf('/') <= {MAX_PREFIX} && k.matches(r'^{pattern}$'))"
        ),
        message=f"{path} has a key that {allowed}",
        check=lambda self: not wrong(self),
        explain=lambda self: f"{path} has the key {shown(wrong(self)[0])}, which {allowed}",
        field_path=f".{name}",
    )


def _is_key(key: str, pattern: str) -> bool:
    within = len(key) <= MAX_KEY and key.find("/") <= MAX_PREFIX
    return within and re.fullmatch(pattern, key) is not None


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
            cel=f"!has(self.args) || self.args.all(a, !{expansion_cel('a')})",
            message=f"{where}.args must not contain {EXPANSION}: {_REPLACED}; {_INSTEAD}",
            check=lambda self: not expanded(self.args),
            explain=lambda self: (
                f"{where}.args must not contain {EXPANSION}, as {shown(expanded(self.args)[0])} "
                f"does: {_REPLACED}; {_INSTEAD}"
            ),
            field_path=".args",
        ),
        Rule(
            cel=f"!has(self.env) || self.env.all(e, !({OWNED_VARIABLE_CEL}))",
            message=(
                f"{where}.env must not set DISAGGPAIR_*, VLLM_NIXL_*, FI_PROVIDER, POD_IP, "
                f"VLLM_HOST_IP or VLLM_CONFIG_ROOT: {_SET}"
            ),
            check=lambda self: not owned_variables(_names(self.env)),
            explain=lambda self: (
                f"{where}.env must not set {', '.join(owned_variables(_names(self.env)))}: {_SET}"
            ),
            field_path=".env",
        ),
    )


def _names(env: Iterable[EnvVar]) -> list[str]:
    return [entry.name for entry in env]
