"""A pair's Secret on a real API server, made by an operator with the chart's rights alone."""

import base64
import json
import subprocess
import sys
from typing import Any

import pytest

from disaggpair_bed.builders import raw_pair
from disaggpair_bed.controlplane.errors import ToolError
from disaggpair_bed.operator_bench import EXPECTED, Bench, eventually

NAME = "chat-keys"
KEYS = {"lease-key", "conversation-key"}


def secret(bench: Bench) -> dict[str, Any]:
    found: dict[str, Any] = bench.get("secret", NAME)
    return found


def values(bench: Bench) -> dict[str, str]:
    data = secret(bench).get("data", {})
    return {key: base64.b64decode(value).decode() for key, value in data.items()}


def patch(bench: Bench, change: dict[str, Any]) -> None:
    bench.kubectl("patch", "secret", NAME, "--type=merge", f"--patch={json.dumps(change)}")


def test_it_is_made_once_and_belongs_to_the_pair(bench: Bench) -> None:
    bench.put_pair()
    operator = bench.start("--resync-seconds=1")
    bench.await_children()
    made = secret(bench)
    assert set(values(bench)) == KEYS
    assert {len(value) for value in values(bench).values()} == {43}
    assert made["metadata"]["ownerReferences"][0]["uid"] == bench.pair()["metadata"]["uid"]
    bench.put_pair({"prefill": {"replicas": 2}, "engine": {"args": ["--seed=1"]}})
    before = operator.reconciles()
    eventually(lambda: operator.reconciles() >= before + 3, "3 more reconciles")
    eventually(lambda: bench.pair()["status"]["observedGeneration"] == 2, "the edit observed")
    assert secret(bench) == made
    assert not any(value in operator.log.read_text() for value in values(bench).values())
    assert not any(value in json.dumps(bench.pair()) for value in values(bench).values())


@pytest.mark.parametrize("value", [None, ""])
def test_a_key_without_a_value_is_made_anew_and_the_other_kept(
    bench: Bench, value: str | None
) -> None:
    bench.put_pair()
    bench.start("--resync-seconds=1")
    bench.await_children()
    first = values(bench)
    patch(bench, {"data": {"conversation-key": value}})
    eventually(
        lambda: values(bench).get("conversation-key") not in (None, "", first["conversation-key"]),
        "another conversation key",
    )
    assert values(bench)["lease-key"] == first["lease-key"]


def test_a_deleted_secret_is_made_anew_with_other_values(bench: Bench) -> None:
    bench.put_pair()
    bench.start("--resync-seconds=1")
    bench.await_children()
    first = values(bench)
    bench.kubectl("delete", "secret", NAME)
    eventually(lambda: set(values(bench)) == KEYS, "the Secret again")
    assert not set(values(bench).values()) & set(first.values())


def test_a_value_of_the_users_is_kept(bench: Bench) -> None:
    bench.put_pair()
    operator = bench.start("--resync-seconds=1")
    bench.await_children()
    patch(bench, {"stringData": {"lease-key": "chosen-by-a-person"}})
    before = operator.reconciles()
    eventually(lambda: operator.reconciles() >= before + 3, "3 more reconciles")
    assert values(bench)["lease-key"] == "chosen-by-a-person"


def test_it_goes_with_the_pair(bench: Bench) -> None:
    bench.put_pair()
    bench.start()
    bench.await_children()
    bench.kubectl("delete", "disaggpair", "chat")
    eventually(lambda: not secret(bench), "no Secret")


def test_somebody_elses_secret_is_left_alone_and_no_engine_is_made_with_it(bench: Bench) -> None:
    theirs = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": NAME}, "data": {}}
    bench.put(theirs)
    bench.put_pair()
    bench.start()
    name = f"Secret {bench.namespace}/{NAME}"
    eventually(lambda: name in str(bench.pair().get("status")), "its name in the status")
    assert bench.condition("Stalled")["reason"] == "NotOurs"
    assert "data" not in secret(bench)
    assert bench.children() == []


def test_the_operators_account_can_neither_list_nor_delete_secrets(bench: Bench) -> None:
    account = f"--as=system:serviceaccount:{bench.namespace}:operator"
    for verb, allowed in (("get", True), ("create", True), ("list", False), ("delete", False)):
        try:
            bench.kubectl("auth", "can-i", verb, "secrets", account)
        except ToolError:
            assert not allowed, verb
        else:
            assert allowed, verb


def test_what_plan_prints_can_be_applied_and_makes_no_secret(bench: Bench) -> None:
    raw = raw_pair({"placement": {"zone": "nowhere-1a"}}, namespace=bench.namespace)
    command = [sys.executable, "-m", "disaggpair", "plan", "-f", "-"]
    done = subprocess.run(
        command, input=json.dumps(raw), capture_output=True, text=True, check=True
    )
    assert NAME in done.stdout.splitlines()[0]
    bench.kubectl("apply", "--server-side", "-f", "-", stdin=done.stdout)
    assert len(bench.children()) == EXPECTED
    assert secret(bench) == {}
