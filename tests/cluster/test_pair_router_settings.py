"""What `spec.router` switches on, in the router of a pair: seen from outside its pod."""

import base64
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from disaggpair_bed.cluster import Cluster
from disaggpair_bed.pair_bench import Bench, installed

PAIR = "told"
SECRET = "collector"
KEY = "k3y-of-the-collector"
HEADER = "x-chat"
HISTORY = [{"role": "system", "content": "Each entry names the cargo. " * 60}]


@dataclass
class Collector:
    """An OTLP receiver on the loopback interface."""

    url: str = ""
    spans: list[Any] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    collected = Collector()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collected.keys.add(self.headers.get("x-key", ""))
            told = ExportTraceServiceRequest.FromString(body)
            for resource in told.resource_spans:
                for scope in resource.scope_spans:
                    collected.spans.extend(scope.spans)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    collected.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield collected
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def bench(cluster: Cluster) -> Iterator[Bench]:
    with installed(cluster, "settings") as running:
        yield running
        running.free()


@pytest.fixture(scope="module")
def missing(bench: Bench, collector: Collector) -> dict[str, Any]:
    """What is said while the collector's Secret is not there."""
    bench.apply(
        PAIR,
        {
            "engine": {"apiKeySecretRef": {"name": SECRET, "key": "engines"}},
            "router": {
                "workers": 2,
                "tokenize": True,
                "debug": True,
                "logFormat": "JSON",
                "conversationHeaders": [HEADER],
                "guard": {"samplingRatePerMillion": 1_000_000},
                "tracing": {
                    "endpoint": collector.url,
                    "samplingRatePerMillion": 1_000_000,
                    "headersSecretRef": {"name": SECRET, "key": "headers"},
                },
            },
        },
    )
    return bench.wait(PAIR, "SecretsFound", "False")


@pytest.fixture(scope="module")
def router(bench: Bench, missing: dict[str, Any]) -> str:
    """Address of the router's pod, once the Secret is there."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}}
    data = {"stringData": {"headers": f"x-key={KEY}", "engines": KEY}}
    bench.kubectl("apply", "-f", "-", stdin=json.dumps({**secret, **data}))
    bench.wait(PAIR, "SecretsFound", "True")
    bench.wait(PAIR, "Ready", "True")
    (pod,) = bench.pods(PAIR, "router")
    return str(pod["status"]["podIP"])


def ask(url: str, body: object = None, **headers: str) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers})
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read().decode()
    return json.loads(text) if text.startswith("{") else text


def converse(bench: Bench, router: str, chat: str, turns: int = 3) -> None:
    """Turns that continue one another, known by the header alone."""
    history: list[dict[str, str]] = list(HISTORY)
    for turn in range(turns):
        history.append({"role": "user", "content": f"What lies at berth {turn}?"})
        body = {"model": "tiny", "messages": history, "max_tokens": 40, "temperature": 0}
        answer = ask(f"http://{router}:8000/v1/chat/completions", body, **{HEADER: chat})
        history.append(answer["choices"][0]["message"])


def lines(bench: Bench, router: str) -> list[dict[str, Any]]:
    (pod,) = bench.pods(PAIR, "router")
    log = bench.kubectl("logs", pod["metadata"]["name"])
    return [json.loads(line) for line in log.splitlines() if '"way"' in line]


def counted(router: str, series: str) -> float:
    text = str(ask(f"http://{router}:9090/metrics"))
    rows = [row.rsplit(" ", 1) for row in text.splitlines() if row.startswith(series)]
    return sum(float(value) for _, value in rows)


def test_a_secret_that_is_not_there_is_named_and_the_pair_waits_for_it(
    bench: Bench, missing: dict[str, Any]
) -> None:
    assert missing["reason"] == "SecretMissing"
    assert missing["message"] == (
        f"spec.engine.apiKeySecretRef names the Secret {bench.namespace}/{SECRET}, "
        "which does not exist: create it with the key engines; "
        f"spec.router.tracing.headersSecretRef names the Secret {bench.namespace}/{SECRET}, "
        "which does not exist: create it with the key headers"
    )


def test_turns_are_logged_as_json_with_what_came_from_a_cache(bench: Bench, router: str) -> None:
    def has_read() -> bool:
        converse(bench, router, "logged")
        return any(line.get("kv") == "hit" for line in lines(bench, router))

    bench.until(has_read)
    hit = next(line for line in lines(bench, router) if line.get("kv") == "hit")
    assert 0 < hit["cached_tokens"] < hit["prompt_tokens"]


def test_the_guard_checks_turns_that_used_earlier_kv(bench: Bench, router: str) -> None:
    def has_checked() -> bool:
        converse(bench, router, "guarded")
        return counted(router, 'disaggpair_router_guard_checks_total{result="match"}') > 0

    bench.until(has_checked)
    assert counted(router, 'disaggpair_router_guard_checks_total{result="mismatch"}') == 0


def test_a_turns_trace_reaches_the_collector_with_the_secrets_header(
    bench: Bench, router: str, collector: Collector
) -> None:
    converse(bench, router, "traced", turns=1)
    bench.until(lambda: {"turn", "prefill", "decode"} <= {span.name for span in collector.spans})
    assert collector.keys == {KEY}


def test_engines_ask_for_the_key_that_the_router_gives_them(bench: Bench, router: str) -> None:
    assert ask(f"http://{router}:8000/v1/models")["data"]
    with pytest.raises(urllib.error.HTTPError, match="401"):
        ask(f"{bench.address(PAIR, 'decode')}/v1/models")


def test_two_processes_serve_one_port(bench: Bench, router: str) -> None:
    (pod,) = bench.pods(PAIR, "router")
    log = bench.kubectl("logs", pod["metadata"]["name"])
    assert log.count("listens on port 8000") == 2
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "2", "memory": "2560Mi"}


def test_the_debug_page_and_tokenize_answer(bench: Bench, router: str) -> None:
    page = ask(f"http://{router}:9091/debug/conversations")
    assert {engine["role"] for engine in page["engines"]} == {"prefill", "decode"}
    with pytest.raises(urllib.error.HTTPError, match="404"):
        ask(f"http://{router}:9090/debug/conversations")
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}]}
    assert ask(f"http://{router}:8000/tokenize", body)["count"] > 0


def test_no_word_of_the_secret_is_in_an_object_or_a_log(bench: Bench, router: str) -> None:
    kinds = "deployments,replicasets,pods,configmaps,disaggpairs"
    texts = [bench.kubectl("get", kinds, "-o", "json")]
    pods = json.loads(bench.kubectl("get", "pods", "-o", "json"))["items"]
    texts += [bench.kubectl("logs", pod["metadata"]["name"]) for pod in pods]
    for word in (
        KEY,
        base64.b64encode(KEY.encode()).decode(),
        base64.b64encode(f"x-key={KEY}".encode()).decode(),
    ):
        assert not any(word in text for text in texts)
