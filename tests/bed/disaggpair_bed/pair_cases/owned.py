"""Arguments and variables that are the operator's own, in every spelling."""

from itertools import cycle
from typing import Final

from disaggpair_bed.pair_cases.case import Case, bad, below_spec, short
from disaggpair_operator.api.arguments import OWNED_FLAGS


def _owned_arguments() -> tuple[Case, ...]:
    """Every flag of the operator's in every spelling that vLLM's parser takes."""
    spellings: dict[str, str] = {}
    for flag in OWNED_FLAGS:
        for text in (
            f"--{flag}",
            f"--{flag.replace('-', '_')}",
            f"--{flag}=1",
            f"--{flag}.key=1",
            f"--{flag} 1",
            f"--{flag}=\n1\n",
            f"--{flag[:-1]}",
            f"--{flag[: len(flag) // 2]}=1",
            f"--{flag[0]}",
        ):
            spellings.setdefault(text, flag)
    for abbreviation in ("tp", "dp", "pp"):
        spellings |= dict.fromkeys(
            (f"-{abbreviation}", f"--{abbreviation}", f"-{abbreviation}=2", f"-{abbreviation[0]}"),
            abbreviation,
        )
    return tuple(
        bad(f"{part}.args", ["--seed=1", text], f"{part}-args-{text!r}", says="must not set")
        for part, text in zip(cycle(("engine", "prefill", "decode")), spellings, strict=False)
    )


def _owned_variables() -> tuple[Case, ...]:
    owned = (
        "DISAGGPAIR_LEASE_KEY",
        "VLLM_NIXL_SIDE_CHANNEL_HOST",
        "VLLM_NIXL_SIDE_CHANNEL_PORT",
        "VLLM_NIXL_ABORT_REQUEST_TIMEOUT",
        "FI_PROVIDER",
        "POD_IP",
        "VLLM_HOST_IP",
        "VLLM_CONFIG_ROOT",
    )
    return tuple(
        bad(f"{part}.env", [{"name": name}], f"{part}-env-{name}", says="must not set")
        for name in owned
        for part in ("engine", "prefill", "decode")
    )


def _expansions() -> tuple[Case, ...]:
    """What Kubernetes would replace on the command line, wherever users write to it."""
    hidden = "--kv-transfer-config={}"
    says = "must not contain $("
    whole = tuple(
        Case(
            f"{part}-args-hidden-in-a-variable",
            below_spec(part, {"args": ["$(KV)"], "env": [{"name": "KV", "value": hidden}]}),
            f"spec.{part}.args",
            says,
        )
        for part in ("engine", "prefill", "decode")
    )
    return whole + tuple(
        bad(path, value, f"{path}-{short(text)}", says=says)
        for path in ("model.name", "model.servedName", "model.revision", "decode.args")
        for text in ("$(KV)", "a$(KV)b", "$$(KV)", "$(", "x" * 250 + "$(")
        for value in ([["--seed=1", text]] if path.endswith("args") else [text])
    )


OWNED: Final = (*_owned_arguments(), *_owned_variables(), *_expansions())
