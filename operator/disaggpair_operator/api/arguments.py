"""Which engine arguments and variables the operator owns, in every spelling. Pure.

vLLM's parser takes `--kv-transfer-config`, `--kv_transfer_config`, `--flag=value`, dotted keys
such as `--kv-transfer-config.kv_role` (vLLM 0.32) and, being argparse, every beginning of a flag
that no other flag shares. `--config` reads all of them from a file. The patterns are valid both
for Python and for the API server's RE2.

Kubernetes replaces `$(NAME)` in the arguments of a container by the value of that variable, after
every check of the argument. A text with it could become any argument, so none may have it, not
even as `$$(`, which Kubernetes turns into `$(`.
"""

import re
from collections.abc import Iterable
from typing import Final

_ALONE: Final = (
    "config",
    "kv-transfer-config",
    "block-size",
    "host",
    "port",
    "uds",
    "model",
    "served-model-name",
    "revision",
    "shutdown-timeout",
)
_PARALLEL: Final = ("tensor", "data", "pipeline")
_PARALLEL_TAIL: Final = "parallel-size"
_CACHING: Final = "enable-prefix-caching"
_SHORT_FLAGS: Final = ("tp", "dp", "pp")

OWNED_FLAGS: Final = (
    *_ALONE,
    *(f"{head}-{_PARALLEL_TAIL}" for head in _PARALLEL),
    _CACHING,
    f"no-{_CACHING}",
)
"""Flags without their dashes that only the operator sets."""


def _beginnings(flag: str) -> str:
    """Pattern for every beginning of `flag` of one letter or more.

    A beginning that several flags share is an error at the engine's start, so no argument that
    works is refused with it.
    """
    pattern = ""
    for letter in reversed(flag[1:]):
        pattern = f"({'[-_]' if letter == '-' else letter}{pattern})?"
    return flag[0] + pattern


def _pattern() -> str:
    """Pattern for every beginning of every owned flag after `--`.

    The flags that end alike share that part: the API server refuses a rule by the product of its
    pattern's length and the size of the longest list of arguments.
    """
    sizes = [f"{head}-" for head in _PARALLEL]
    shared = rf"({'|'.join(_PARALLEL)})[-_]{_beginnings(_PARALLEL_TAIL)}"
    caching = rf"(no[-_])?{_beginnings(_CACHING)}"
    alone = [*_ALONE, *sizes, "no-", *_SHORT_FLAGS]
    return "|".join([*map(_beginnings, alone), shared, caching])


_SHORT: Final = "|".join(map(_beginnings, _SHORT_FLAGS))

# Go's \s is ASCII and Python's is not; the class keeps both engines of one mind.
OWNED_ARGUMENT: Final = rf"^-(-({_pattern()})|{_SHORT})([.= \t\n\f\r]|$)"
OWNED_VARIABLE: Final = (
    r"^(DISAGGPAIR_.*|VLLM_NIXL_.*|FI_PROVIDER|POD_IP|VLLM_HOST_IP|VLLM_CONFIG_ROOT)$"
)

# The API server stops a rule that costs too much while it runs; text after the flag costs as much
# as the flag, so it is cut off first. One letter more than the longest flag shows whether it ends.
_HEAD: Final = max(map(len, OWNED_FLAGS)) + len("--") + 1
OWNED_ARGUMENT_CEL: Final = (
    f"(a.size() > {_HEAD} ? a.substring(0, {_HEAD}) : a).matches(r'{OWNED_ARGUMENT}')"
)
OWNED_VARIABLE_CEL: Final = f"e.name.matches(r'{OWNED_VARIABLE}')"

EXPANSION: Final = "$("


def expansion_cel(text: str) -> str:
    """CEL that asks whether Kubernetes would replace something in the text `text`."""
    return f"{text}.contains('{EXPANSION}')"


def expanded(texts: Iterable[str]) -> list[str]:
    """Those of `texts` in which Kubernetes would replace something."""
    return [text for text in texts if EXPANSION in text]


def owned_arguments(args: Iterable[str]) -> list[str]:
    """Those of `args` that set something the operator renders itself."""
    return [arg for arg in args if re.search(OWNED_ARGUMENT, arg)]


def owned_variables(names: Iterable[str]) -> list[str]:
    """Those of `names` that the operator sets itself."""
    return [name for name in names if re.search(OWNED_VARIABLE, name)]
