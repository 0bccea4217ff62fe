"""Pairs of simulated engines on a real cluster, from `kubectl apply` to their turns and their end.

The operator is installed by the chart and runs as a pod with its own account.
"""

import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from openai import APIStatusError, OpenAI

from disaggpair_bed.cluster import Cluster
from disaggpair_bed.pair_bench import Bench, installed

ROLES = ("prefill", "decode", "router")
LONG_PROMPT = "The harbour keeps a book of ships, and each entry names the cargo. " * 20


@pytest.fixture(scope="module")
def bench(cluster: Cluster) -> Iterator[Bench]:
    with installed(cluster, "pairs") as running:
        yield running


@pytest.fixture(autouse=True)
def _free_gpus(bench: Bench) -> Iterator[None]:
    """The next test's pairs need the devices of this one's."""
    yield
    bench.free()


class Chat:
    """A conversation that sends its history each turn, streamed."""

    def __init__(self, client: OpenAI, conversation: str) -> None:
        self.client, self._conversation = client, conversation
        self.history: list[Any] = [{"role": "system", "content": LONG_PROMPT}]

    def ask(self, text: str, **extra: Any) -> str:
        self.history.append({"role": "user", "content": text})
        stream = self.client.chat.completions.create(
            model="tiny",
            messages=self.history,
            stream=True,
            max_tokens=80,
            temperature=0,
            extra_body={"conversation_id": self._conversation, **extra},
        )
        answer = "".join(choice.delta.content or "" for chunk in stream for choice in chunk.choices)
        self.history.append({"role": "assistant", "content": answer})
        return answer


@pytest.mark.parametrize("image", ["disaggpair/vllm-sim:v0.33.0", "disaggpair/vllm-sim:v0.32.0"])
def test_a_conversation_reads_its_history_back_from_decode(bench: Bench, image: str) -> None:
    name = "talk-" + image[-3]
    bench.apply(name, {"engine": {"image": image}})
    bench.wait(name, "Ready", "True")
    counters = bench.read_from_d(name)
    chat = Chat(bench.client(name), "c1")
    chat.ask("What lies at berth one?")
    assert counters().read == 0
    chat.ask("And at berth two?")
    second = counters()
    assert second.read > 0
    assert second.computed < second.read


def test_every_child_has_a_valid_name_for_the_longest_pair_name(bench: Bench) -> None:
    name = ".".join(["a" * 63, "b" * 63, "c" * 63, "d" * 61])
    assert len(name) == 253
    bench.apply(name)
    bench.wait(name, "Ready", "True")


def test_a_change_of_the_shared_settings_makes_a_new_revision_of_both_roles(bench: Bench) -> None:
    bench.apply("changed")
    bench.wait("changed", "Ready", "True")
    before = bench.get("disaggpair", "changed")["status"]["revision"]
    chat = Chat(bench.client("changed"), "c1")
    chat.ask("What lies at berth one?")
    bench.apply("changed", {"kvTransfer": {"recomputeThresholdTokens": 128}})
    bench.wait("changed", "Ready", "True")
    after = bench.get("disaggpair", "changed")["status"]["revision"]
    assert after != before
    for role in ("prefill", "decode"):
        (pod,) = bench.pods("changed", role)
        assert pod["metadata"]["labels"]["disaggpair.dev/revision"] == after
    assert chat.ask("And at berth two?")


def test_a_pair_that_fits_nowhere_says_which_node_lacks_what(bench: Bench) -> None:
    bench.apply("wide", {"prefill": {"tensorParallelSize": 16}})
    seen = bench.wait("wide", "Scheduled", "False", lambda c: "p5en-a-1" in c["message"])
    assert "p5en-a-1 offers 8 nvidia.com/gpu, wanted 16" in seen["message"]
    assert "p5en-b-1 has label topology.kubernetes.io/zone that is us-east-2b" in seen["message"]
    assert bench.condition("wide", "Ready")["reason"] == "Unschedulable"
    assert "prefill" in seen["message"]


def test_an_engine_that_cannot_start_says_its_last_words(bench: Bench) -> None:
    bench.apply("broken", {"decode": {"args": ["--max-model-len=many"]}})
    seen = bench.wait("broken", "DecodeReady", "False", lambda c: c["reason"] == "CrashLoopBackOff")
    assert "max-model-len" in seen["message"]


def test_without_prefill_decode_answers_alone_and_the_status_says_so(bench: Bench) -> None:
    bench.apply("lonely", {"prefill": {"tensorParallelSize": 16}})
    bench.wait("lonely", "Serving", "True", lambda c: c["reason"] == "DecodeAlone")
    assert Chat(bench.client("lonely"), "c1").ask("What lies at berth one?")


def answers(base_url: str) -> bool:
    """Whether anything listens there."""
    try:
        urllib.request.urlopen(base_url, timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def test_without_prefill_a_pair_that_refuses_answers_503(bench: Bench) -> None:
    changes = {"prefill": {"tensorParallelSize": 16}, "router": {"fallback": "Refuse"}}
    bench.apply("strict", changes)
    bench.wait("strict", "DecodeReady", "True")
    bench.wait("strict", "Serving", "False")
    bench.until(lambda: [p for p in bench.pods("strict", "router") if p["status"].get("podIP")])
    (router,) = bench.pods("strict", "router")
    base = f"http://{router['status']['podIP']}:8000/v1"
    client = OpenAI(base_url=base, api_key="none", max_retries=0, timeout=60)
    bench.until(lambda: answers(base))
    with pytest.raises(APIStatusError) as refused:
        Chat(client, "c1").ask("What lies at berth one?")
    assert refused.value.status_code == 503
    assert "Retry-After" in refused.value.response.headers


def is_ready_again(pods: list[dict[str, Any]], old: dict[str, Any]) -> bool:
    """There is one pod, ready, and it is not the old one."""
    ready = [
        pod["metadata"]["uid"]
        for pod in pods
        for entry in pod["status"].get("conditions", [])
        if (entry["type"], entry["status"]) == ("Ready", "True")
    ]
    return len(pods) == 1 and ready not in ([], [old["metadata"]["uid"]])


@pytest.mark.parametrize("role", ROLES)
def test_a_conversation_goes_on_right_after_a_pod_was_replaced(bench: Bench, role: str) -> None:
    name = f"killed-{role}"
    bench.apply(name)
    bench.wait(name, "Ready", "True")
    chat = Chat(bench.client(name), "c1")
    chat.ask("What lies at berth one?")
    (old,) = bench.pods(name, role)
    bench.kubectl("delete", "pod", old["metadata"]["name"], "--grace-period=0", "--force")
    bench.until(lambda: is_ready_again(bench.pods(name, role), old))
    bench.wait(name, "Ready", "True")
    chat.client = bench.client(name)
    answer = chat.ask("And at berth two?")
    control = Chat(bench.client(name), "control")
    control.history = chat.history[:-2]
    assert control.ask("And at berth two?", cache_salt="control") == answer


def test_a_suspended_pair_gives_its_gpus_back_and_comes_again(bench: Bench) -> None:
    bench.apply("paused")
    bench.wait("paused", "Ready", "True")
    bench.apply("paused", {"suspend": True})
    bench.wait("paused", "Ready", "False", lambda c: c["reason"] == "Suspended")
    bench.until(lambda: not any(bench.pods("paused", role) for role in ROLES))
    bench.apply("paused", {"suspend": False})
    bench.wait("paused", "Ready", "True")


def test_a_deleted_pair_goes_with_the_operator_gone_too(bench: Bench) -> None:
    bench.apply("gone")
    bench.wait("gone", "Ready", "True")
    bench.kubectl("scale", "deployment/pairs-disaggpair", "--replicas=0")
    try:
        bench.kubectl("delete", "disaggpair", "gone", "--timeout=60s")
        kinds = "deployments,services,configmaps,secrets,roles,rolebindings,serviceaccounts,pods"
        label = "disaggpair.dev/pair=gone"
        bench.until(lambda: not bench.kubectl("get", kinds, "-l", label, "-o", "name"))
    finally:
        bench.kubectl("scale", "deployment/pairs-disaggpair", "--replicas=1")
