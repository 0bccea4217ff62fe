"""Good and wrong DisaggPairs, for every place that accepts or refuses them.

The contract tests feed the table to the models, the cluster tests feed it to a real API server: an
object is right for both or for none, and both name the same field.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Final

from disaggpair_operator.api.arguments import OWNED_FLAGS


@dataclass(frozen=True)
class Case:
    """One object: what differs from the builder's spec, and what is said about it."""

    name: str
    """What the case is about; the id of its tests."""
    changes: Mapping[str, Any]
    """Laid over `builders.spec()`."""
    field: str = ""
    """Field that a refusal names; empty for an accepted object."""
    says: str = ""
    """Part of the sentence that the models and the API server both give."""


def _in(path: str, value: object) -> dict[str, Any]:
    """Changes that set the field at `path` below spec."""
    changes: Any = value
    for step in reversed(path.split(".")):
        changes = {step: changes}
    assert isinstance(changes, dict)
    return changes


def good(path: str, value: object, about: str = "") -> Case:
    """An accepted object with one field set."""
    return Case(about or f"{path}={_short(value)}", _in(path, value))


def bad(path: str, value: object, about: str = "", *, field: str = "", says: str = "") -> Case:
    """A refused object with one field set; the refusal names that field or `field`."""
    case_name = about or f"{path}={_short(value)}"
    return Case(case_name, _in(path, value), f"spec.{field or path}", says)


def _short(value: object) -> str:
    text = str(value) or "empty"
    return text if len(text) <= 40 else f"{type(value).__name__}-of-{len(text)}"


_SECRET: Final = {"name": "hub", "key": "token"}
_ZONE: Final = "topology.kubernetes.io/zone"

ACCEPTED: Final = (
    Case("the-least", {}),
    good("model.servedName", "qwen"),
    good("model.revision", "main"),
    good("model.tokenSecretRef", _SECRET),
    good("model.cache.claim", "weights"),
    good("model.cache.hostPath", "/mnt/models"),
    good("model.cache.ephemeral", True),
    good("model.name", "/models/qwen"),
    good("model.name", "!" + "~" * 1022 + "$", "model-at-its-bound"),
    good("model.cache.hostPath", "/mnt/..models/a..b/...", "dots-that-do-not-go-up"),
    good("model.tokenSecretRef", {"name": "hub.a", "key": ".token..x"}, "key-with-dots"),
    good("engine.connector", "Nixl"),
    good("engine.image", "example/vllm:0.33"),
    good("engine.image", "example/vllm:v0.33.0-cu129@sha256:00ff", "image-with-digest"),
    good("engine", {"image": "example/vllm:latest", "version": "0.33.0"}, "version-beside-tag"),
    good("engine", {"image": "example/vllm", "version": "0.33.1.dev12+g0abc"}, "build-of-vllm"),
    good("engine", {"image": "example/vllm", "version": "0.33rc1"}, "release-candidate"),
    good("engine.pullPolicy", "Always"),
    good("engine.args", ["--max-model-len", "8192", "--enforce-eager", "--kv-cache-dtype=fp8"]),
    good("engine.args", ["--data-parallel-size-local=1", "--model-loader-extra-config={}"]),
    good("engine.args", ["--" + "x" * 2046] * 64, "args-at-their-bound"),
    good("engine.env", [{"name": f"{i:0253}".replace("0", "A")} for i in range(64)], "long-names"),
    good("engine.args", ["--no-enable-prefix-cachings=1"], "longer-than-the-longest-flag"),
    good("engine.env", [{"name": "HF_HOME", "value": "/x"}, {"name": "VLLM_USE_V1"}]),
    good("engine.env", [{"name": "TOKEN", "secretKeyRef": _SECRET}], "env-from-secret"),
    good("engine.env", [{"name": "HOST", "value": "$(POD_IP)"}], "env-of-another"),
    good("engine.env", [{"name": ".0-a"}], "odd-variable"),
    good("engine.args", ["--seed=$", "($)", "$ (A)", "$$", "{$}"], "dollars-that-stay"),
    good("prefill.args", ["$" * 2048] * 64, "dollars-at-their-bound"),
    good("placement.instanceTypes", ["p5en.48xlarge"]),
    good("placement.nodeSelector", {_ZONE: "us-east-2a"}, "same-zone-again"),
    good("placement.nodeSelector", {"pool": "h200", "empty": ""}),
    good("placement.nodeSelector", {"a": None}, "null-in-a-map"),
    good(
        "placement.nodeSelector",
        {f"{'x' * 251}.{i:x}/{'A' * 63}": "Z" * 63 for i in range(16)},
        "labels-at-their-bound",
    ),
    good("placement.tolerations", [{"key": "a.example/b_C"}], "key-with-prefix"),
    good("placement.tolerations", []),
    good("placement.tolerations", [{"key": "a", "operator": "Equal", "value": "b"}], "equal"),
    good("placement.tolerations", [{}], "tolerate-all"),
    good("fabric", {"type": "TCP", "devices": 0}, "tcp-without-devices"),
    good("fabric.type", "TCP"),
    good("fabric.security", "Privileged"),
    Case(
        "hugepages-with-memory",
        {
            "fabric": {"hugepages": "5120Mi"},
            "prefill": {"resources": {"memory": "64Gi"}},
            "decode": {"resources": {"cpu": "500m"}},
        },
    ),
    Case(
        "hugepages-of-two",
        {
            "fabric": {"hugepages": "2Mi"},
            "prefill": {"resources": {"memory": "1Gi"}},
            "decode": {"resources": {"memory": "1Gi"}},
        },
    ),
    good("kvTransfer.bidirectional", False),
    good("kvTransfer.decodeTTLSeconds", 480, "ttl-450-of-480"),
    good("kvTransfer.blockSize", 16),
    good("kvTransfer.blockSize", 16.0, "whole-float-in-enum"),
    good("kvTransfer.recomputeThresholdTokens", 1),
    good("kvTransfer.prefillLeaseSeconds", 6),
    good("kvTransfer", None, "null-part-with-default"),
    good("prefill.replicas", 64),
    good("prefill.replicas", 2.0, "whole-float"),
    good("prefill.replicas", None, "null-with-default"),
    good("prefill", {"gpus": None, "args": None, "podTemplate": None}, "null-without-default"),
    good("prefill", {"tensorParallelSize": 4, "gpus": 4}, "gpus-of-tp"),
    good("prefill.gpus", 8, "gpus-of-default-tp"),
    good("prefill.prefixCaching", False),
    good("decode.sharedMemory", "1.5Gi"),
    good("decode.startupSeconds", 60),
    good("router.fallback", "Refuse"),
    good("router.service.type", "LoadBalancer"),
    good("router.service.annotations", {"a.example/b": "c"}),
    good("router.service.annotations", {"A.Example/b": "{}\n", "plain": ""}, "annotations"),
    good(
        "router.service.annotations",
        {f"{'x' * 250}.{i:02}/{'A' * 63}": "z" * 1024 for i in range(32)},
        "annotations-at-their-bound",
    ),
    good("rollout.drainSeconds", 0),
    good("rollout.strategy", "Auto"),
    good("suspend", True),
)

_TOO_LONG_TTL: Final = "must be at most 450"

REFUSED: Final = (
    # A wrong type, an unknown field, a missing one.
    bad("unknown", 1),
    bad("kvTransfer.decodeTTLSecond", 480),
    bad("prefill.blockSize", 64, "one-sided-block-size"),
    bad("decode.recomputeThresholdTokens", 64, "one-sided-threshold"),
    bad("model", []),
    bad("model.name", None, "null-where-required"),
    bad("engine.args", [None], "null-in-a-list", field="engine.args[0]"),
    bad("engine.version", 33, "number-as-text"),
    bad("suspend", "yes"),
    bad("prefill.replicas", "2", "text-as-number"),
    bad("prefill.replicas", 1.5, "fraction"),
    bad("prefill.args", "--seed=1", "args-not-a-list"),
    bad("placement.nodeSelector", {"a": 1}, "number-as-label", field="placement.nodeSelector"),
    bad("model.tokenSecretRef", {"name": "hub"}, "no-key", field="model.tokenSecretRef.key"),
    bad("engine.env", [{"value": "x"}], "env-without-name", field="engine.env[0].name"),
    # Bounds.
    bad("model.name", ""),
    bad("model.name", "m" * 1025),
    bad("model.name", "--config=x", "model-as-flag"),
    bad("model.servedName", "-x", "served-name-as-flag"),
    bad("model.revision", "a b"),
    bad("model.tokenSecretRef", {"name": "Hub", "key": "k"}, field="model.tokenSecretRef.name"),
    bad("model.tokenSecretRef", {"name": "hub", "key": "a/b"}, field="model.tokenSecretRef.key"),
    bad("model.tokenSecretRef", {"name": "a..b", "key": "k"}, field="model.tokenSecretRef.name"),
    *(
        bad("model.tokenSecretRef", {"name": "hub", "key": key}, field="model.tokenSecretRef.key")
        for key in (".", "..", "..k")
    ),
    *(
        bad(f"model.{field}", f"a{space}b", f"{field}-with-u{ord(space):04x}")
        for field in ("name", "servedName", "revision")
        for space in "\u00a0\u2028\u3000\x85\x1b\n"
    ),
    bad("model.cache.hostPath", "models"),
    bad("engine.image", ""),
    bad("engine.image", "a b:v0.33.0"),
    bad("engine.image", "a\u00a0b:v0.33.0", "image-with-u00a0"),
    bad("engine.image", "a\u2003b:v0.33.0", "image-with-u2003"),
    bad("engine.version", "latest"),
    bad("engine.version", "0.339999999999"),
    bad("engine.version", "0.33.0 "),
    bad("engine.version", "1000.0"),
    bad("engine.args", [""], "empty-argument", field="engine.args[0]"),
    bad("engine.args", ["x" * 2049], "long-argument", field="engine.args[0]"),
    bad("engine.args", ["x"] * 65, "many-arguments"),
    bad("engine.env", [{"name": f"A{i}"} for i in range(65)], "many-variables"),
    bad("engine.env", [{"name": "1A"}], field="engine.env[0].name"),
    bad("engine.env", [{"name": ".."}], field="engine.env[0].name"),
    bad("engine.env", [{"name": "A"}, {"name": "A"}], "variable-twice", field="engine.env"),
    bad("placement.zone", ""),
    bad("placement.zone", "us east"),
    bad("placement.zone", "z" * 64),
    bad("placement.instanceTypes", []),
    bad("placement.instanceTypes", [""], "no-type", field="placement.instanceTypes[0]"),
    bad("placement.nodeSelector", {f"k{i}": "v" for i in range(17)}, "many-labels"),
    bad("placement.nodeSelector", {"pool": "a b"}, "odd-label-value"),
    bad("placement.tolerations", [{}] * 17, "many-tolerations"),
    bad("placement.tolerations", [{"key": "a b"}], field="placement.tolerations[0].key"),
    bad(
        "placement.tolerations",
        [{"key": "a", "operator": "Equal", "value": "b c"}],
        "odd-taint-value",
        field="placement.tolerations[0].value",
    ),
    bad("fabric.devices", -1),
    bad("fabric.devices", 33),
    bad("fabric.hugepages", "5120"),
    bad("fabric.hugepages", "0Gi"),
    bad("fabric.hugepages", "99999999Gi"),
    bad("kvTransfer.decodeTTLSeconds", 59),
    bad("kvTransfer.decodeTTLSeconds", 86_401),
    bad("kvTransfer.recomputeThresholdTokens", 0),
    bad("kvTransfer.prefillLeaseSeconds", 5),
    bad("prefill.replicas", 0),
    bad("decode.replicas", 65),
    bad("decode.tensorParallelSize", 0),
    bad("decode.gpus", 0),
    bad("decode.resources.memory", "lots"),
    bad("decode.resources.cpu", "-1"),
    bad("prefill.sharedMemory", ""),
    bad("prefill.startupSeconds", 59),
    bad("router.handleTTLSeconds", 9),
    bad("router.service.port", 0),
    bad("router.service.port", 65_536),
    bad("rollout.drainSeconds", 3601),
    # Enumerations.
    bad("engine.connector", "Mooncake", "push-connector"),
    bad("engine.pullPolicy", "Sometimes"),
    bad("placement.topologyKey", "rack"),
    bad("placement.tolerations", [{"effect": "Run"}], field="placement.tolerations[0].effect"),
    bad("placement.tolerations", [{"operator": "In"}], field="placement.tolerations[0].operator"),
    bad("fabric.type", "UCX"),
    bad("fabric.security", "None"),
    bad("kvTransfer.blockSize", 17),
    bad("kvTransfer.blockSize", "128", "block-size-as-text"),
    bad("router.fallback", "Retry"),
    bad("router.service.type", "ExternalName"),
    bad("rollout.strategy", "Fast"),
    # Rules.
    bad("fabric.devices", 0, says="must be at least 1 with type EFA"),
    bad("fabric.hugepages", "5120Mi", says="needs cpu or memory"),
    Case(
        "hugepages-with-memory-on-one-side",
        {"fabric": {"hugepages": "1Gi"}, "prefill": {"resources": {"memory": "64Gi"}}},
        "spec.fabric.hugepages",
        "spec.decode.resources",
    ),
    bad("fabric.hugepages", "3Mi", says="must be a multiple of 2Mi"),
    *(
        bad("placement.nodeSelector", {key: "v"}, f"label-{_short(key)}", says="label key")
        for key in ("", "a b", "A/b", "a/b/c", "/a", "-a", "a" * 64, "x" * 254 + "/a", "a" * 9999)
    ),
    *(
        bad("router.service.annotations", {key: "v"}, f"note-{_short(key)}", says="annotation key")
        for key in ("", "a b", "a/b/c", "/a", "-a", "a" * 64, "x" * 254 + "/a", "a" * 9999)
    ),
    bad("placement.nodeSelector", {_ZONE: "us-east-2b"}, "two-zones", says="us-east-2b"),
    bad("model.cache", {}, "no-cache-kind", says="exactly one of claim, hostPath and ephemeral"),
    bad("model.cache", {"ephemeral": False}, "cache-not-ephemeral", says="exactly one"),
    bad("model.cache", {"claim": "a", "hostPath": "/b"}, "two-cache-kinds", says="exactly one"),
    bad("model.cache", {"claim": "a", "ephemeral": True}, "claim-and-ephemeral", says="exactly"),
    *(
        bad("model.cache.hostPath", path, says="must not have .. as a part")
        for path in ("/..", "/../a", "/mnt/../etc", "/mnt/..")
    ),
    bad("engine.image", "example/vllm:0.339999", field="engine.version", says="is required when"),
    bad("engine.image", "example/vllm:latest", field="engine.version", says="is required when"),
    bad("engine.image", "example/vllm", field="engine.version", says="is required when"),
    bad("engine.image", "reg:5000/vllm", field="engine.version", says="is required when"),
    bad("prefill.gpus", 4, says="is 4, but must be at least 8"),
    bad("decode", {"tensorParallelSize": 4, "gpus": 2}, "few-gpus", says="must be at least 4"),
    bad("prefill.podTemplate", {"spec": {}}, says="not yet supported"),
    bad("decode.podTemplate", {}, says="not yet supported"),
    bad("kvTransfer.directTurns", {}, says="not yet supported"),
    bad("router.auth", {"type": "jwt"}, says="not yet supported"),
    bad("router.tenants", {}, says="not yet supported"),
    bad("router.replicas", 2, says="must be 1"),
    bad("rollout.strategy", "Surge", says="must be Auto"),
    bad("rollout.strategy", "InPlace", says="must be Auto"),
    bad("router.handleTTLSeconds", 451, says=_TOO_LONG_TTL),
    bad("router.handleTTLSeconds", 480, "router-outlives-blocks", says=_TOO_LONG_TTL),
    bad("router.handleTTLSeconds", 600, says=_TOO_LONG_TTL),
    bad("kvTransfer.decodeTTLSeconds", 479, field="router.handleTTLSeconds", says="at most 449"),
    bad(
        "engine.env",
        [{"name": "A", "value": "x", "secretKeyRef": _SECRET}],
        "two-values",
        field="engine.env[0]",
        says="either value or secretKeyRef",
    ),
    bad(
        "placement.tolerations",
        [{"key": "a", "value": "b"}],
        "value-with-exists",
        field="placement.tolerations[0]",
        says="with operator Equal only",
    ),
    bad(
        "placement.tolerations",
        [{"operator": "Equal", "value": "b"}],
        "equal-without-key",
        field="placement.tolerations[0]",
        says="with operator Equal only",
    ),
)


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
    for short in ("tp", "dp", "pp"):
        spellings |= dict.fromkeys(
            (f"-{short}", f"--{short}", f"-{short}=2", f"-{short[0]}"), short
        )
    return tuple(
        bad(f"{part}.args", ["--seed=1", text], f"{part}-args-{text!r}", says="must not set")
        for part, text in zip(cycle(("engine", "prefill", "decode")), spellings, strict=False)
    )


def _owned_variables() -> tuple[Case, ...]:
    owned = (
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
            _in(part, {"args": ["$(KV)"], "env": [{"name": "KV", "value": hidden}]}),
            f"spec.{part}.args",
            says,
        )
        for part in ("engine", "prefill", "decode")
    )
    return whole + tuple(
        bad(path, value, f"{path}-{_short(text)}", says=says)
        for path in ("model.name", "model.servedName", "model.revision", "decode.args")
        for text in ("$(KV)", "a$(KV)b", "$$(KV)", "$(", "x" * 250 + "$(")
        for value in ([["--seed=1", text]] if path.endswith("args") else [text])
    )


OWNED: Final = (*_owned_arguments(), *_owned_variables(), *_expansions())
CASES: Final = (*ACCEPTED, *REFUSED, *OWNED)
