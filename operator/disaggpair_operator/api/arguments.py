"""Which engine arguments and variables the operator owns, in every spelling. Pure.

vLLM's parser takes `--kv-transfer-config`, `--kv_transfer_config`, `--flag=value` and dotted keys
such as `--kv-transfer-config.kv_role` (vLLM 0.32). `--config` reads all of them from a file. The
patterns are valid both for Python and for the API server's RE2.
"""

import re
from collections.abc import Iterable
from typing import Final

OWNED_FLAGS: Final = (
    "config",
    "block-size",
    "host",
    "port",
    "uds",
    "model",
    "served-model-name",
    "revision",
    "tensor-parallel-size",
    "data-parallel-size",
    "pipeline-parallel-size",
    "enable-prefix-caching",
    "no-enable-prefix-caching",
    "shutdown-timeout",
)
_SHORT_FLAGS: Final = ("tp", "dp", "pp")
# argparse completes `--kv-transfer`, and no other flag of vLLM begins with `--kv-t`.
_LONG = "|".join([r"kv[-_]t[-_a-z]*", *(flag.replace("-", "[-_]") for flag in OWNED_FLAGS)])

OWNED_ARGUMENT: Final = rf"^\s*(--({_LONG})|--?({'|'.join(_SHORT_FLAGS)}))([.=\s].*)?$"
OWNED_VARIABLE: Final = r"^(VLLM_NIXL_.*|FI_PROVIDER|POD_IP|VLLM_HOST_IP|VLLM_CONFIG_ROOT)$"

OWNED_ARGUMENT_CEL: Final = f"a.matches(r'{OWNED_ARGUMENT}')"
OWNED_VARIABLE_CEL: Final = f"e.name.matches(r'{OWNED_VARIABLE}')"


def owned_arguments(args: Iterable[str]) -> list[str]:
    """Those of `args` that set something the operator renders itself."""
    return [arg for arg in args if re.search(OWNED_ARGUMENT, arg)]


def owned_variables(names: Iterable[str]) -> list[str]:
    """Those of `names` that the operator sets itself."""
    return [name for name in names if re.search(OWNED_VARIABLE, name)]
