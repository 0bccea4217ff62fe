"""Who may use a pair: its own keys between router and engines, and its tenants' at two routers."""

import base64
import hashlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from itertools import cycle
from typing import Any

import pytest
from openai import OpenAI

from disaggpair_bed.cluster import Cluster
from disaggpair_bed.pair_bench import Bench, installed

PAIR = "shared"
API_KEYS = "api-keys"
BODY = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}


@pytest.fixture(scope="module")
def bench(cluster: Cluster) -> Iterator[Bench]:
    with installed(cluster, "access") as running:
        yield running
        running.free()


@pytest.fixture(scope="module")
def routers(bench: Bench) -> list[str]:
    """Addresses of the two routers of a pair that asks for API keys."""
    tell_keys(bench, {"team-a": ["key-of-a"]})
    auth = {"apiKeysSecretRef": {"name": API_KEYS}}
    bench.apply(PAIR, {"router": {"replicas": 2, "auth": auth}})
    bench.wait(PAIR, "Ready", "True")
    return [pod["status"]["podIP"] for pod in bench.pods(PAIR, "router")]


def tell_keys(bench: Bench, keys: dict[str, list[str]]) -> None:
    """Put the digests of these API keys into the users' Secret."""
    digests = {
        tenant: "\n".join(hashlib.sha256(key.encode()).hexdigest() for key in owned)
        for tenant, owned in keys.items()
    }
    secret: dict[str, Any] = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": API_KEYS}}
    bench.kubectl("apply", "-f", "-", stdin=json.dumps({**secret, "stringData": digests}))


def ask(url: str, key: str, body: object = None) -> int:
    """The status of an answer to a request with this key."""
    headers = {"Content-Type": "application/json"} | (
        {"Authorization": f"Bearer {key}"} if key else {}
    )
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refusal:
        return refusal.code


def turn(router: str, key: str) -> int:
    """How a router answers a turn with this API key."""
    return ask(f"http://{router}:8000/v1/chat/completions", key, BODY)


def turn_is_served(router: str, key: str) -> bool:
    return turn(router, key) == 200


def lease_key(bench: Bench) -> str:
    data = bench.get("secret", f"{PAIR}-keys")["data"]
    return base64.b64decode(data["lease-key"]).decode()


def test_every_replica_serves_tenants_and_nobody_else(bench: Bench, routers: list[str]) -> None:
    assert len(routers) == 2
    for router in routers:
        assert [turn(router, key) for key in ("key-of-a", "", "key-of-b")] == [200, 401, 401]


def test_a_tenant_that_is_added_is_served_without_a_restart(
    bench: Bench, routers: list[str]
) -> None:
    tell_keys(bench, {"team-a": ["key-of-a", "next-key-of-a"], "team-c": ["key-of-c"]})
    for router in routers:
        bench.until(partial(turn_is_served, router, "key-of-c"))
        assert turn(router, "next-key-of-a") == 200
    assert {pod["status"]["podIP"] for pod in bench.pods(PAIR, "router")} == set(routers)


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_an_engine_lists_its_leases_for_the_pairs_key_alone(
    bench: Bench, routers: list[str], role: str
) -> None:
    (engine,) = bench.pods(PAIR, role)
    url = f"http://{engine['status']['podIP']}:5700/leases"
    for key, answer in ((lease_key(bench), 200), ("another", 403), ("", 403)):
        assert ask(url, key) == answer


def test_no_key_is_in_any_object_but_its_secret(bench: Bench, routers: list[str]) -> None:
    kinds = "deployments,replicasets,pods,configmaps,disaggpairs"
    text = bench.kubectl("get", kinds, "-o", "json")
    secret = bench.get("secret", f"{PAIR}-keys")["data"]
    for encoded in secret.values():
        assert encoded not in text
        assert base64.b64decode(encoded).decode() not in text


def test_a_conversation_goes_on_at_the_other_replica(bench: Bench, routers: list[str]) -> None:
    read = bench.read_from_d(PAIR)
    turns = cycle(
        OpenAI(base_url=f"http://{router}:8000/v1", api_key="key-of-a", max_retries=0)
        for router in routers
    )
    history: list[Any] = [{"role": "system", "content": "Each entry names the cargo. " * 60}]

    def reads_what_the_other_began() -> bool:
        history.append({"role": "user", "content": f"What lies at berth {len(history)}?"})
        answer = next(turns).chat.completions.create(
            model="tiny",
            messages=history,
            max_tokens=40,
            temperature=0,
            extra_body={"conversation_id": "one"},
        )
        history.append({"role": "assistant", "content": answer.choices[0].message.content})
        return read().read > 0

    assert not reads_what_the_other_began()
    # D tells each router of a lease at its own time, so the first turn after may come too early.
    bench.until(reads_what_the_other_began)
