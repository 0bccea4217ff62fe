"""What a pair may say and may not say of its router, and of the key between it and the engines."""

from typing import Final

from disaggpair_bed.pair_cases.case import Case, bad, good, short

_KEY: Final = {"name": "collector", "key": "headers"}
_MILLION: Final = 1_000_000
_NO_LEASES: Final = {"connector": "Nixl"}
_REQUESTS_OF_1_MIB: Final = {"maxRequestBytes": 2**20}
_GATEWAY: Final = {"tenantHeader": "X-Tenant", "trustedProxies": ["10.0.0.0/8"]}

ACCEPTED_OF_THE_ROUTER: Final = (
    good("engine.apiKeySecretRef", {"name": "engine-key", "key": "key"}),
    good("engine.env", [{"name": "VLLM_API_KEY", "value": "x"}], "api-key-of-the-users-own"),
    good("router.workers", 64),
    good("router", {"workers": 2, "resources": {"cpu": "2"}}, "workers-of-as-many-cpus"),
    good("router", {"workers": 2, "resources": {"cpu": "2500m"}}, "workers-of-more-cpus"),
    good("router", {"workers": 1, "resources": {"cpu": "100m"}}, "one-worker-of-a-tenth-cpu"),
    good("router", {"workers": 9, "resources": {"memory": "11520Mi"}}, "workers-of-given-memory"),
    good(
        "router",
        {"resources": {"memory": "260Mi"}, "limits": {"maxBodyBytes": 2**20, **_REQUESTS_OF_1_MIB}},
        "a-router-of-little-memory",
    ),
    Case(
        "workers-without-handles",
        {
            "router": {"workers": 2},
            "engine": _NO_LEASES,
            "kvTransfer": {"bidirectional": False},
        },
    ),
    good("router.conversationHeaders", [], "no-conversation-header"),
    good("router.conversationHeaders", ["X_Chat-Id2", "x" * 64]),
    good("router.conversationHeaders", [f"h{'x' * 61}{i:02}" for i in range(16)], "many-headers"),
    good("router.maxImbalance", 0),
    good("router.tokenize", True),
    good("router.debug", True),
    good("router.logFormat", "JSON"),
    good("router.timeouts", None, "null-timeouts"),
    good("router.timeouts.prefillSeconds", 86_400),
    good("router.timeouts", {"keepaliveSeconds": 0, "canarySeconds": 0}, "neither-of-them"),
    good("router.limits", {"maxBodyBytes": 2**30, "maxRequestBytes": 2**30}, "one-large-body"),
    good("router.limits.maxRequestBytes", 2**40),
    good("router.limits.maxConversations", 100_000, "the-default-number-of-handles"),
    Case(
        "bounds-on-handles-in-memory",
        {
            "router": {
                "limits": {"maxConversations": 1, "maxHandleBytes": 2**40, "maxHeldTokens": 1}
            },
            "engine": _NO_LEASES,
        },
    ),
    good("router.limits.retriesPerSecond", 0),
    good("router.guard", None, "null-guard"),
    good("router.guard", {}, "guard-of-defaults"),
    good("router.guard", {"samplingRatePerMillion": _MILLION, "tolerancePercent": 99}),
    *(
        good("router.tracing.endpoint", url)
        for url in (
            "http://a",
            "https://collector.telemetry.svc:4318",
            "http://10.0.0.4:65535/v1/traces",
            "http://collector/",
            "http://collector.example/a_b/~c",
        )
    ),
    good(
        "router.tracing",
        {"endpoint": "http://c", "samplingRatePerMillion": 0, "headersSecretRef": _KEY},
        "tracing-with-headers",
    ),
)

REFUSED_OF_THE_ROUTER: Final = (
    bad("engine.apiKeySecretRef", {"name": "engine-key"}, field="engine.apiKeySecretRef.key"),
    *(
        Case(
            f"two-api-keys-of-{part}",
            {
                "engine": {"apiKeySecretRef": {"name": "a", "key": "b"}},
                part: {
                    "env": [{"name": "VLLM_API_KEY", "value": "x"}],
                    **({"apiKeySecretRef": {"name": "a", "key": "b"}} if part == "engine" else {}),
                },
            },
            "spec.engine.apiKeySecretRef",
            "remove the variable",
        )
        for part in ("engine", "prefill", "decode")
    ),
    *(
        Case(
            f"api-key-and-{flag}",
            {"engine": {"apiKeySecretRef": {"name": "a", "key": "b"}}, part: {"args": [flag, "x"]}},
            "spec.engine.apiKeySecretRef",
            "the flag --api-key",
        )
        for part, flag in (("prefill", "--api-key"), ("decode", "--api_key"))
    ),
    bad("router.workers", 0),
    bad("router.workers", 65),
    *(
        bad(
            "router",
            {"workers": 2, "resources": {"cpu": cpu}},
            f"workers-of-{cpu}",
            field="router.workers",
            says="spec.router.resources.cpu",
        )
        for cpu in ("1", "1999m", "0.5", "0")
    ),
    Case(
        "two-workers-with-handles-in-memory",
        {"router": {"workers": 2}, "engine": _NO_LEASES},
        "spec.router.workers",
        "must be 1 with spec.engine.connector Nixl",
    ),
    *(
        bad(
            "router.conversationHeaders",
            ["x-chat", header],
            f"conversation-header-{short(header)}",
            field="router.conversationHeaders[1]",
        )
        for header in ("", "a b", "-x", "x:", "1x", "x" * 65)
    ),
    bad("router.conversationHeaders", ["x"] * 17, "many-conversation-headers"),
    *(
        bad("router.conversationHeaders", [header], says="must not have authorization")
        for header in ("Authorization", "X-Api-Key", "x-request-id", "Traceparent")
    ),
    bad(
        "router",
        {"conversationHeaders": ["x-tenant"], "auth": _GATEWAY},
        "tenant-as-conversation",
        field="router.conversationHeaders",
        says="must not have spec.router.auth.tenantHeader",
    ),
    bad("router.maxImbalance", -1),
    bad("router.logFormat", "Text"),
    bad("router.timeouts.prefillSeconds", 0),
    bad("router.timeouts.decodeIdleSeconds", 86_401),
    bad("router.timeouts.keepaliveSeconds", 3601),
    bad("router.timeouts.connectSeconds", 5, "an-internal-limit"),
    bad("router.limits.maxBodyBytes", 1023),
    bad("router.limits.maxBodyBytes", "32Mi", "bytes-as-a-quantity"),
    bad("router.limits.retriesPerSecond", 10_001),
    bad("router.limits.maxHeldTokens", 0),
    *(
        bad("router.limits", {name: 1 << 16}, f"{name}-with-leases", says="must be left out")
        for name in ("maxConversations", "maxHandleBytes", "maxHeldTokens")
    ),
    bad("router.limits.maxRequestBytes", 2**25 - 1, says="but must be at least 33554432"),
    bad("router.limits", {"maxBodyBytes": 2**30}, "a-body-of-more-than-all", says="268435456"),
    *(
        bad(
            "router",
            {"workers": workers, "resources": {"memory": memory}, "limits": limits},
            f"{workers}-workers-of-{memory}",
            field="router.resources.memory",
            says="spec.router.limits.maxRequestBytes for each of spec.router.workers",
        )
        for workers, memory, limits in (
            (1, "1279Mi", {}),
            (9, "11519Mi", {}),
            (1, "4Gi", {"maxRequestBytes": 2**40}),
            (1, "1", {}),
        )
    ),
    bad("router.guard", True, "guard-as-a-switch"),
    bad("router.guard.samplingRatePerMillion", 0),
    bad("router.guard.samplingRatePerMillion", 0.001, "a-share"),
    bad("router.guard.tolerancePercent", 100),
    bad("router.tracing", {}, field="router.tracing.endpoint"),
    *(
        bad("router.tracing.endpoint", url)
        for url in (
            "collector:4318",
            "grpc://collector:4317",
            "http://user@collector",
            "http://collector:0",
            "http://collector:65536",
            "http://collector:4318?a=b",
            "http://collector#a",
            "http://collector/a b",
            "http:///v1/traces",
            "http://collector:4318\n",
            "http://" + "c" * 1020,
        )
    ),
    bad(
        "router.tracing",
        {"endpoint": "http://c", "samplingRatePerMillion": _MILLION + 1},
        "more-than-all-traces",
        field="router.tracing.samplingRatePerMillion",
    ),
    bad(
        "router.tracing",
        {"endpoint": "http://c", "headersSecretRef": {"name": "c"}},
        "headers-without-a-key",
        field="router.tracing.headersSecretRef.key",
    ),
)
