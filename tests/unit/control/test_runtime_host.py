"""The process around the reconcile: flags, events to keys, sign-in, logs and metrics."""

import argparse
import asyncio
import json
import logging
import socket
import urllib.request
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from disaggpair_bed.builders import raw_pair
from disaggpair_bed.fakes.cluster import FakeCluster
from disaggpair_operator import kinds, names
from disaggpair_operator.cluster import Conflict, Rejected, Unavailable
from disaggpair_operator.command import add_arguments, run, settings_from
from disaggpair_operator.errors import BadSettings, DefinitionMissing
from disaggpair_operator.handlers import (
    SETTLE_S,
    Events,
    check_definition,
    connection_info,
    kopf_settings,
    log_failure,
)
from disaggpair_operator.keys import Key, KnownPairs
from disaggpair_operator.kube import Credentials
from disaggpair_operator.logs import JsonFormatter
from disaggpair_operator.metrics import Metrics
from disaggpair_operator.queue import WorkQueue
from disaggpair_operator.settings import Settings

KEY = Key("default", "chat")
LONG = Key("default", "a" * 80)


class Recorder(WorkQueue[Key]):
    """A queue that only keeps what was added."""

    def __init__(self) -> None:
        self.added: list[tuple[Key, float]] = []

    def add(self, key: Key, delay_s: float = 0.0) -> None:
        self.added.append((key, delay_s))


def event(obj: dict[str, Any], type_: str | None = "MODIFIED") -> dict[str, Any]:
    return {"type": type_, "object": obj}


def child(kind: str = names.KIND, api_version: str = names.API_VERSION) -> dict[str, Any]:
    reference = {"apiVersion": api_version, "kind": kind, "name": "chat", "uid": "u"}
    return {"metadata": {"namespace": "default", "ownerReferences": [reference]}}


def pod(key: Key) -> dict[str, Any]:
    labels = {names.PAIR_LABEL: names.label_value(key.name)}
    return {"metadata": {"namespace": key.namespace, "labels": labels}}


@pytest.mark.parametrize("type_", [None, "ADDED", "MODIFIED", "DELETED"])
async def test_any_event_of_a_pair_asks_for_its_reconcile_at_once(type_: str | None) -> None:
    queue = Recorder()
    await Events(KnownPairs(), queue).on_pair(event=event(raw_pair(), type_), other="ignored")
    assert queue.added == [(KEY, 0.0)]


async def test_a_childs_event_asks_for_its_controllers_reconcile() -> None:
    queue = Recorder()
    owned = child()
    owned["metadata"]["ownerReferences"][0]["controller"] = True
    await Events(KnownPairs(), queue).on_child(event=event(owned))
    assert queue.added == [(KEY, SETTLE_S)]


@pytest.mark.parametrize(
    "obj",
    [
        child(),
        child(kind="Deployment", api_version="apps/v1"),
        child(api_version="disaggpair.example/v1"),
        {"metadata": {"namespace": "default"}},
    ],
)
async def test_an_object_that_no_pair_controls_asks_for_nothing(obj: dict[str, Any]) -> None:
    queue = Recorder()
    await Events(KnownPairs(), queue).on_child(event=event(obj))
    assert queue.added == []


@pytest.mark.parametrize("key", [KEY, LONG])
async def test_a_pods_event_finds_its_pair_by_label_once_the_pair_is_known(key: Key) -> None:
    queue, known = Recorder(), KnownPairs()
    events = Events(known, queue)
    await events.on_pod(event=event(pod(key)))
    assert queue.added == []
    await events.on_pair(event=event(raw_pair(name=key.name), "ADDED"))
    queue.added.clear()
    await events.on_pod(event=event(pod(key)))
    assert queue.added == [(key, SETTLE_S)]
    await events.on_pair(event=event(raw_pair(name=key.name), "DELETED"))
    assert known.all() == ()


async def test_pairs_of_one_name_in_two_namespaces_are_kept_apart() -> None:
    known = KnownPairs()
    known.add(Key("a", "chat"))
    known.add(Key("b", "chat"))
    known.discard(Key("c", "chat"))
    assert known.find_pod_pair(pod(Key("b", "chat"))) == Key("b", "chat")


def test_the_watches_ask_for_labelled_objects_only_and_for_nothing_else() -> None:
    settings = kopf_settings()
    assert not settings.posting.enabled
    assert settings.scanning.disabled
    watched = settings.watching.label_selectors
    for kind in (kinds.POD, *kinds.CHILDREN):
        assert watched[kind.group, kind.version, kind.plural] == names.PAIR_LABEL
    assert (kinds.PAIR.group, kinds.PAIR.version, kinds.PAIR.plural) not in watched


@pytest.mark.parametrize(
    ("authorization", "scheme", "token"),
    [("bearer abc", "Bearer", "abc"), ("Bearer abc", "Bearer", "abc"), (None, None, None)],
)
def test_the_watches_sign_in_as_the_client_does(
    authorization: str | None, scheme: str | None, token: str | None
) -> None:
    credentials = Credentials(
        server="https://there",
        ca_path="ca.crt",
        insecure=False,
        authorization=authorization,
        certificate_path=None,
        private_key_path=None,
    )
    info = connection_info(credentials)
    assert (info.server, info.ca_path, info.scheme, info.token) == (
        "https://there",
        "ca.crt",
        scheme,
        token,
    )


async def test_without_the_definition_the_operator_says_what_to_install() -> None:
    cluster = FakeCluster()
    await check_definition(cluster, ("a",))
    cluster.fail("list", "DisaggPair", Rejected("the server could not find the resource"))
    with pytest.raises(DefinitionMissing, match="install the CustomResourceDefinition"):
        await check_definition(cluster, ())


async def test_an_api_server_that_is_not_ready_is_waited_for_but_not_for_ever() -> None:
    cluster = FakeCluster()
    slept: list[float] = []

    async def sleep(delay_s: float) -> None:
        slept.append(delay_s)

    cluster.fail("list", "DisaggPair", Unavailable("storage is (re)initializing"), times=2)
    await check_definition(cluster, (), sleep)
    assert slept == [0.5, 1.0]
    cluster.fail("list", "DisaggPair", Unavailable("no answer"), times=100)
    with pytest.raises(Unavailable, match="no answer"):
        await check_definition(cluster, (), sleep)


def test_an_expected_failure_is_one_line_and_a_fault_of_ours_has_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log_failure(KEY, Conflict("late"), 2, 1.5)
    log_failure(KEY, ZeroDivisionError("ours"), 1, 1.0)
    expected, ours = caplog.records
    assert (expected.levelname, vars(expected)["text"], expected.exc_info) == (
        "WARNING",
        "late",
        None,
    )
    assert ours.levelname == "ERROR"
    assert ours.exc_info is not None


def test_a_log_line_is_json_with_its_fields() -> None:
    record = logging.makeLogRecord(
        {"name": "n", "levelname": "INFO", "msg": "applied", "created": 0.0, "pair": "default/chat"}
    )
    assert json.loads(JsonFormatter().format(record)) == {
        "time": "1970-01-01T00:00:00.000+00:00",
        "level": "INFO",
        "logger": "n",
        "message": "applied",
        "pair": "default/chat",
    }


# -- flags ------------------------------------------------------------------------------------


def parsed(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(argv)


def test_the_router_image_is_all_that_must_be_given() -> None:
    assert settings_from(parsed("--router-image", "img"), "") == Settings(router_image="img")


def test_the_router_image_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROUTER_IMAGE", "img")
    assert settings_from(parsed(), "").router_image == "img"


def test_namespaces_add_up_and_count_once() -> None:
    args = parsed("--router-image=i", "--namespace=a", "--namespace=b", "--namespace=a")
    assert settings_from(args, "").namespaces == ("a", "b")


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ((), "--router-image is empty"),
        (("--router-image=i", "--bind-address=PodIP"), "POD_IP is empty"),
        (("--router-image=i", "--health-port=70000"), "--health-port is 70000"),
        (("--router-image=i", "--health-port=9090"), "are both 9090"),
        (("--router-image=i", "--resync-seconds=0"), "--resync-seconds is 0"),
    ],
)
def test_settings_that_cannot_work_are_refused_in_one_sentence(
    argv: tuple[str, ...], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROUTER_IMAGE", raising=False)
    with pytest.raises(BadSettings, match=sentence):
        settings_from(parsed(*argv), "")


def test_a_wrong_flag_ends_the_command_before_it_connects(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ROUTER_IMAGE", raising=False)
    assert run(parsed()) == 2
    assert capsys.readouterr().err.startswith("disaggpair operator: --router-image is empty")


@pytest.mark.parametrize(
    ("bind", "pod_ip", "url"),
    [
        ("AllInterfaces", "", "http://0.0.0.0:8080/healthz"),
        ("PodIP", "10.0.0.7", "http://10.0.0.7:8080/healthz"),
        ("PodIP", "fd00::7", "http://[fd00::7]:8080/healthz"),
    ],
)
def test_health_is_answered_on_the_bound_address(bind: Any, pod_ip: str, url: str) -> None:
    assert Settings(router_image="i", bind=bind, pod_ip=pod_ip).health_url == url


def test_port_zero_switches_health_off() -> None:
    assert Settings(router_image="i", health_port=0).health_url is None


# -- metrics ----------------------------------------------------------------------------------


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(name, labels)


async def test_reconciles_are_counted_by_result_and_timed() -> None:
    ticks = iter([0.0, 0.2, 1.0, 1.3])
    metrics = Metrics(lambda: 3, lambda: 1, lambda: next(ticks))

    async def work(key: Key) -> float | None:
        if key == LONG:
            raise Conflict("late")
        return 15.0

    measured = metrics.measured(work)
    assert await measured(KEY) == 15.0
    with pytest.raises(Conflict):
        await measured(LONG)
    registry = metrics.registry
    assert value(registry, "disaggpair_reconciles_total", result="ok") == 1
    assert value(registry, "disaggpair_reconciles_total", result="failed") == 1
    assert value(registry, "disaggpair_reconcile_seconds_sum") == pytest.approx(0.5)
    assert value(registry, "disaggpair_pairs") == 3
    assert value(registry, "disaggpair_queue_waiting") == 1


async def test_metrics_are_served_until_stopped() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    stop = Metrics(lambda: 3, lambda: 1).serve("127.0.0.1", port)
    try:
        text = await asyncio.to_thread(_get, f"http://127.0.0.1:{port}/metrics")
    finally:
        stop()
    assert "disaggpair_pairs 3.0" in text
    with pytest.raises(OSError, match="refused"):
        await asyncio.to_thread(_get, f"http://127.0.0.1:{port}/metrics")


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())
