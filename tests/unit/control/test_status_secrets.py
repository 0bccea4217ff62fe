"""Secrets that a pair names: found, missing, and said of them without a value."""

import base64
import json
from typing import Any

import pytest

from disaggpair_bed.builders import FACTS, owner, pair, raw_pair, serving
from disaggpair_bed.fakes.cluster import FakeCluster
from disaggpair_operator.cluster import Forbidden, Unavailable
from disaggpair_operator.keys import Key
from disaggpair_operator.model import Applied, Object, Observed, SecretUse
from disaggpair_operator.plan import desired
from disaggpair_operator.reconcile import WAITING_S, Reconciler
from disaggpair_operator.status import next_status
from disaggpair_operator.status.secrets import secrets_found

KEY = Key("default", "chat")
NOW = "2026-11-30T05:00:00Z"
VALUE = "authorization=Bearer%20k3y"
EVERY_USE: dict[str, Any] = {
    "model": {"tokenSecretRef": {"name": "hub", "key": "token"}},
    "engine": {
        "apiKeySecretRef": {"name": "engine-key", "key": "key"},
        "env": [
            {"name": "A", "value": "b"},
            {"name": "C", "secretKeyRef": {"name": "c", "key": "d"}},
        ],
    },
    "prefill": {"env": [{"name": "E", "secretKeyRef": {"name": "e", "key": "f"}}]},
    "decode": {"env": [{"name": "G", "secretKeyRef": {"name": "g", "key": "h"}}]},
    "router": {
        "auth": {"apiKeysSecretRef": {"name": "api-keys"}},
        "tracing": {
            "endpoint": "http://c",
            "headersSecretRef": {"name": "collector", "key": "headers"},
        },
    },
}
TRACED = {"router": {"tracing": EVERY_USE["router"]["tracing"]}}


def secret(name: str = "collector", **data: str) -> Object:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded}


class Bench:
    """A reconciler of one pair and its cluster."""

    def __init__(self, changes: dict[str, Any], *secrets: Object) -> None:
        self.cluster = FakeCluster()
        self.cluster.put(raw_pair(changes))
        for one in secrets:
            self.cluster.put(one)
        self.reconciler = Reconciler(self.cluster, FACTS, lambda: NOW)

    async def again_s(self) -> float | None:
        return await self.reconciler.reconcile(KEY)

    def condition(self, type_: str = "SecretsFound") -> tuple[str, str, str]:
        found = self.cluster.take(KEY.ref)
        assert found is not None
        by_type = {entry["type"]: entry for entry in found["status"]["conditions"]}
        entry = by_type[type_]
        return entry["status"], entry["reason"], entry["message"]


def test_every_field_that_can_name_a_secret_is_looked_at() -> None:
    uses = desired(pair(EVERY_USE), owner(), FACTS).uses
    assert uses == (
        SecretUse("spec.model.tokenSecretRef", "hub", "token"),
        SecretUse("spec.engine.apiKeySecretRef", "engine-key", "key"),
        SecretUse("spec.engine.env[1].secretKeyRef", "c", "d"),
        SecretUse("spec.prefill.env[0].secretKeyRef", "e", "f"),
        SecretUse("spec.decode.env[0].secretKeyRef", "g", "h"),
        SecretUse("spec.router.auth.apiKeysSecretRef", "api-keys"),
        SecretUse("spec.router.tracing.headersSecretRef", "collector", "headers"),
    )
    assert desired(pair(), owner(), FACTS).uses == ()


def test_every_secret_of_the_pods_is_the_pairs_own_or_looked_at() -> None:
    plan = desired(pair(EVERY_USE), owner(), FACTS)
    text = json.dumps([dict(obj) for obj in plan.objects])
    names = {use.name for use in plan.uses} | {"chat-keys"}
    pods = [o["spec"]["template"]["spec"] for o in plan.objects if o["kind"] == "Deployment"]
    used = {
        entry["valueFrom"]["secretKeyRef"]["name"]
        for one in pods
        for entry in one["containers"][0]["env"]
        if "secretKeyRef" in entry.get("valueFrom", {})
    } | {v["secret"]["secretName"] for one in pods for v in one["volumes"] if "secret" in v}
    assert used == names
    assert text.count("secretKeyRef") + text.count('"secret":') >= len(names)


async def test_a_missing_secret_is_named_with_its_field_and_found_when_it_appears() -> None:
    bench = Bench(TRACED)
    assert await bench.again_s() == WAITING_S
    sentence = (
        "spec.router.tracing.headersSecretRef names the Secret default/collector, "
        "which does not exist: create it with the key headers"
    )
    assert bench.condition() == ("False", "SecretMissing", sentence)
    assert bench.condition("Ready") == ("False", "SecretMissing", f"SecretsFound: {sentence}")
    assert bench.condition("Reconciling")[:2] == ("True", "SecretMissing")
    bench.cluster.put(secret(headers=VALUE))
    assert await bench.again_s() is None
    assert bench.condition()[:2] == ("True", "AllFound")
    assert bench.condition("Ready")[1] != "SecretMissing"


@pytest.mark.parametrize("data", [{}, {"other": "x"}, {"headers": ""}])
async def test_a_missing_or_empty_key_is_named(data: dict[str, str]) -> None:
    bench = Bench(TRACED, secret(**data))
    assert await bench.again_s() == WAITING_S
    assert bench.condition() == (
        "False",
        "KeyMissing",
        "spec.router.tracing.headersSecretRef names the key headers of the Secret "
        "default/collector, which has no value: add it",
    )


async def test_a_secret_of_api_keys_needs_an_entry() -> None:
    auth = {"router": {"auth": {"apiKeysSecretRef": {"name": "api-keys"}}}}
    bench = Bench(auth)
    await bench.again_s()
    assert bench.condition()[2].endswith("which does not exist: create it")
    bench.cluster.put(secret("api-keys"))
    await bench.again_s()
    assert bench.condition()[1:] == (
        "KeyMissing",
        "spec.router.auth.apiKeysSecretRef names the Secret default/api-keys, which is empty: "
        "add an entry",
    )


async def test_all_that_is_missing_is_said_at_once_and_each_secret_is_asked_for_once() -> None:
    changes = {**EVERY_USE, "model": {"tokenSecretRef": {"name": "c", "key": "x"}}}
    bench = Bench(changes, secret("c", d="there"))
    await bench.again_s()
    status, reason, message = bench.condition()
    assert (status, reason) == ("False", "KeyMissing")
    assert message.count("; ") == 5
    calls = [call for call in bench.cluster.calls if call.kind == "Secret"]
    asked = sorted(call.name for call in calls if call.verb == "get" and call.name != "chat-keys")
    assert asked == ["api-keys", "c", "collector", "e", "engine-key", "g"]


async def test_no_value_is_in_the_status() -> None:
    bench = Bench(TRACED, secret(headers=VALUE, other="an0ther"))
    await bench.again_s()
    text = json.dumps(bench.cluster.take(KEY.ref))
    for value in (VALUE, "an0ther", base64.b64encode(VALUE.encode()).decode()):
        assert value not in text


async def test_an_operator_that_may_not_look_says_so_and_goes_on() -> None:
    bench = Bench(TRACED)
    bench.cluster.fail("get", "Secret", Forbidden("no"), name="collector")
    assert await bench.again_s() is None
    assert bench.condition() == (
        "Unknown",
        "Forbidden",
        "the operator may not look at Secrets of default: collector",
    )
    assert bench.condition("Ready")[1] != "Forbidden"


async def test_a_failed_look_is_not_taken_for_a_missing_secret() -> None:
    bench = Bench(TRACED)
    bench.cluster.fail("get", "Secret", Unavailable("gone"), name="collector")
    with pytest.raises(Unavailable):
        await bench.again_s()


def status_of(observed: Observed, changes: dict[str, Any]) -> dict[str, tuple[str, str]]:
    wanted = pair(changes)
    status = next_status(
        pair=wanted,
        faults=(),
        plan=desired(wanted, owner(), FACTS),
        observed=observed,
        applied=Applied(),
        previous={},
        now=NOW,
    )
    return {entry["type"]: (entry["status"], entry["reason"]) for entry in status["conditions"]}


def test_pods_that_serve_stay_ready_when_a_secret_goes() -> None:
    everything = serving(desired(pair(TRACED), owner(), FACTS), owner())
    gone = Observed(
        owner=everything.owner,
        children=everything.children,
        pods=everything.pods,
        secrets={"collector": None},
    )
    seen = status_of(gone, TRACED)
    assert seen["SecretsFound"] == ("False", "SecretMissing")
    assert seen["Ready"] == ("True", "PairReady")
    assert "Reconciling" not in seen


def test_a_suspended_pair_says_what_is_missing() -> None:
    seen = status_of(
        Observed(owner=owner(), secrets={"collector": None}), {**TRACED, "suspend": True}
    )
    assert seen["SecretsFound"] == ("False", "SecretMissing")
    assert seen["Ready"] == ("False", "Suspended")


def test_a_pair_that_names_none_has_found_all() -> None:
    assert secrets_found((), {}, "default").status == "True"
