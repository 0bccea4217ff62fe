"""Objects that are wrong, and the field that the refusal names."""

from typing import Final

from disaggpair_bed.pair_cases.case import Case, bad, short
from disaggpair_bed.pair_cases.routers import REFUSED_OF_THE_ROUTER

_SECRET: Final = {"name": "hub", "key": "token"}
_ZONE: Final = "topology.kubernetes.io/zone"

_GATEWAY: Final = {"tenantHeader": "X-Tenant", "trustedProxies": ["10.0.0.0/8"]}

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
        bad("placement.nodeSelector", {key: "v"}, f"label-{short(key)}", says="label key")
        for key in ("", "a b", "A/b", "a/b/c", "/a", "-a", "a" * 64, "x" * 254 + "/a", "a" * 9999)
    ),
    *(
        bad("router.service.annotations", {key: "v"}, f"note-{short(key)}", says="annotation key")
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
    bad("kvTransfer.directTurns.stepTokens", 32),
    bad(
        "kvTransfer",
        {"directTurns": {}, "bidirectional": False},
        "direct-turns-one-way",
        field="kvTransfer.directTurns",
        says="needs spec.engine.connector DisaggPair",
    ),
    *(
        Case(
            f"direct-turns-and-a-step-of-{part}",
            {"kvTransfer": {"directTurns": {}}, part: {"args": [flag, "2048"]}},
            "spec.kvTransfer.directTurns",
            "remove the flag",
        )
        for part, flag in (
            ("decode", "--max-num-batched-tokens"),
            ("engine", "--max_num_batched_tokens"),
        )
    ),
    bad("router.tenants", {}, "tenants-beside-auth"),
    bad("router.auth", {"type": "jwt", **_GATEWAY}, field="router.auth.type"),
    bad("router.auth", {}, says="needs apiKeysSecretRef or tenantHeader"),
    bad("router.auth", {"tenantHeader": ""}, says="needs apiKeysSecretRef or tenantHeader"),
    bad("router.auth.apiKeysSecretRef", {}, field="router.auth.apiKeysSecretRef.name"),
    bad("router.auth.apiKeysSecretRef.name", "A_b"),
    bad("router.auth", {"tenantHeader": "X-Tenant"}, says="together"),
    bad("router.auth", {**_GATEWAY, "trustedProxies": []}, "no-proxies", says="together"),
    bad(
        "router.auth",
        {"apiKeysSecretRef": {"name": "keys"}, "trustedProxies": ["10.0.0.0/8"]},
        "proxies-without-a-header",
        says="together",
    ),
    *(
        bad(
            "router.auth",
            {**_GATEWAY, "tenantHeader": header},
            f"header-{header}",
            field="router.auth.tenantHeader",
            says="must not be authorization",
        )
        for header in ("Authorization", "x-api-key", "X-Conversation-ID", "tracestate")
    ),
    *(
        bad(
            "router.auth",
            {**_GATEWAY, "tenantHeader": header},
            f"header-{short(header)}",
            field="router.auth.tenantHeader",
        )
        for header in ("X Tenant", "-x", "X_Tenant", "X:", "x" * 65)
    ),
    *(
        bad(
            "router.auth",
            {**_GATEWAY, "trustedProxies": ["10.0.0.0/8", network]},
            f"network-{network}",
            field="router.auth.trustedProxies",
        )
        for network in (
            "",
            "10.0.0.1",
            "10.0.0.0/0",
            "10.0.0.0/33",
            "10.0.0.0/08",
            "10.0.0.256/8",
            "010.0.0.0/8",
            "10.0.0.0/255.0.0.0",
            "::/0",
            "::/129",
            "00001::/16",
            "1::2::3/16",
            "::1%eth0/64",
            "::ffff:10.0.0.0/104",
            "gateway/8",
        )
    ),
    bad(
        "router.auth",
        {**_GATEWAY, "trustedProxies": ["10.0.0.0/8"] * 65},
        "many-proxies",
        field="router.auth.trustedProxies",
    ),
    bad("router.replicas", 17),
    Case(
        "two-routers-with-handles-in-memory",
        {"router": {"replicas": 2}, "engine": {"connector": "Nixl"}},
        "spec.router.replicas",
        "must be 1 with spec.engine.connector Nixl",
    ),
    *REFUSED_OF_THE_ROUTER,
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
