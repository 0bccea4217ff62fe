"""A process node as a machine: its object, its logs, its faults, its end."""

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from disaggpair_bed.cluster import Cluster
from disaggpair_bed.controlplane.errors import ToolError
from disaggpair_bed.node.api import Api
from disaggpair_bed.node.faults import ANNOTATION
from disaggpair_bed.node_bench import (
    PATIENCE_S,
    NodeBench,
    Watcher,
    container,
    ended,
    ready,
)

IDLE = {"command": ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"]}


@pytest.fixture
def bench(cluster: Cluster, tmp_path: Path) -> Iterator[NodeBench]:
    bench = NodeBench(cluster, tmp_path)
    try:
        bench.start()
        yield bench
    finally:
        bench.close()


async def node_when(api: Api, name: str, is_so: Any) -> dict[str, Any]:
    """The Node object as it is when the condition holds for the first time."""
    async with asyncio.timeout(PATIENCE_S):
        async for change in api.follow("/api/v1/nodes", f"fieldSelector=metadata.name={name}"):
            for node in change.items:
                if is_so(node):
                    return dict(node)
    raise AssertionError


def allocatable(node: dict[str, Any], resource: str) -> str:
    return str((node.get("status", {}).get("allocatable") or {}).get(resource))


async def fault(api: Api, node: str, value: str | None) -> None:
    await api.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {ANNOTATION: value}}})


async def test_a_node_says_where_and_what_it_is(objects: Watcher) -> None:
    node = await objects.api.get("/api/v1/nodes/p5en-b-1")
    labels = node["metadata"]["labels"]
    assert labels["topology.kubernetes.io/zone"] == "us-east-2b"
    assert labels["topology.kubernetes.io/region"] == "us-east-2"
    assert labels["node.kubernetes.io/instance-type"] == "p5en.48xlarge"
    assert labels["kubernetes.io/hostname"] == "p5en-b-1"
    status = node["status"]
    assert status["capacity"]["nvidia.com/gpu"] == "8"
    assert status["allocatable"]["vpc.amazonaws.com/efa"] == "16"
    assert status["capacity"]["memory"] == "2Ti"
    conditions = {item["type"]: item["status"] for item in status["conditions"]}
    assert conditions == {
        "MemoryPressure": "False",
        "DiskPressure": "False",
        "PIDPressure": "False",
        "Ready": "True",
    }
    assert status["daemonEndpoints"]["kubeletEndpoint"]["Port"] == 10250
    lease = await objects.api.get(
        "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/p5en-b-1"
    )
    assert lease["spec"]["holderIdentity"] == "p5en-b-1"
    assert lease["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]


async def test_a_node_object_that_somebody_deletes_comes_back(
    bench: NodeBench, objects: Watcher
) -> None:
    before = await node_when(objects.api, bench.name, lambda node: allocatable(node, "pods") == "0")
    await objects.api.delete(f"/api/v1/nodes/{bench.name}", {})
    again = await node_when(
        objects.api,
        bench.name,
        lambda node: node["metadata"]["uid"] != before["metadata"]["uid"],
    )
    assert again["metadata"]["labels"]["topology.kubernetes.io/zone"] == "us-east-2a"


async def test_efa_gone_takes_the_devices_out_of_allocatable(
    bench: NodeBench, objects: Watcher
) -> None:
    efa = "vpc.amazonaws.com/efa"
    await node_when(objects.api, bench.name, lambda node: allocatable(node, efa) == "16")
    await fault(objects.api, bench.name, "efa-gone")
    node = await node_when(objects.api, bench.name, lambda node: allocatable(node, efa) == "0")
    assert node["status"]["capacity"][efa] == "16"
    await fault(objects.api, bench.name, None)
    await node_when(objects.api, bench.name, lambda node: allocatable(node, efa) == "16")


async def test_a_node_that_is_gone_takes_its_processes_along_and_boots_again(
    bench: NodeBench, objects: Watcher, tmp_path: Path
) -> None:
    host = {"name": "host", "hostPath": {"path": str(tmp_path)}}
    script = "echo $$ >> /bench-host/starts; exec sleep 600"
    main = {
        "command": ["sh", "-c", script],
        "volumeMounts": [{"name": "host", "mountPath": "/bench-host"}],
    }
    await objects.create(bench.pod("a", main, volumes=[host]))
    before = await objects.pod_when("a", ready)
    await fault(objects.api, bench.name, "node-gone")
    await asyncio.to_thread(bench.wait_for_log, f"node {bench.name} is down")
    # Nothing is reported: the API server still believes in the pod.
    assert ready(await objects.pod_when("a", ready))
    await fault(objects.api, bench.name, None)
    pod = await objects.pod_when(
        "a", lambda pod: container(pod)["restartCount"] == 1 and ready(pod)
    )
    assert container(pod)["lastState"]["terminated"]["reason"] == "ContainerStatusUnknown"
    assert pod["status"]["podIP"] == before["status"]["podIP"]
    assert len((tmp_path / "starts").read_text().split()) == 2


async def test_a_hung_container_fails_its_probe_and_is_restarted(
    bench: NodeBench, objects: Watcher
) -> None:
    serve = (
        "import http.server as h, os; "
        "h.test(h.SimpleHTTPRequestHandler, port=8000, bind=os.environ['POD_IP'])"
    )
    main = {
        "command": ["python3", "-c", serve],
        "env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        "startupProbe": {"httpGet": {"port": 8000}, "periodSeconds": 1, "failureThreshold": 60},
        "livenessProbe": {
            "httpGet": {"port": 8000},
            "periodSeconds": 1,
            "failureThreshold": 1,
            "timeoutSeconds": 5,
            "terminationGracePeriodSeconds": 1,
        },
    }
    await objects.create(bench.pod("hung", main))
    await objects.pod_when("hung", ready)
    await objects.annotate("hung", ANNOTATION, "hung=main")
    pod = await objects.pod_when("hung", lambda pod: container(pod)["restartCount"] == 1)
    assert container(pod)["lastState"]["terminated"]["signal"] == 9
    await objects.pod_when("hung", ready)


async def test_a_killed_container_starts_again(bench: NodeBench, objects: Watcher) -> None:
    await objects.create(bench.pod("kill", IDLE))
    await objects.pod_when("kill", ready)
    await objects.annotate("kill", ANNOTATION, "kill=main")
    pod = await objects.pod_when("kill", lambda pod: container(pod)["restartCount"] == 1)
    assert container(pod)["lastState"]["terminated"]["exitCode"] == 137


async def test_a_slow_start_holds_the_container_back(bench: NodeBench, objects: Watcher) -> None:
    annotations = {"annotations": {ANNOTATION: "slow-start=3600"}}
    await objects.create(bench.pod("slow", IDLE, metadata=annotations))
    pod = await objects.pod_when("slow", lambda pod: bool(container(pod)))
    assert container(pod)["state"]["waiting"]["reason"] == "ContainerCreating"
    await objects.delete("slow")
    last = await objects.gone("slow")
    assert ended(last) == {}


async def test_containers_of_a_killed_node_process_die_and_restart_with_it(
    bench: NodeBench, objects: Watcher, tmp_path: Path
) -> None:
    await objects.create(bench.pod("orphan", {"command": ["sleep", "600"]}))
    await objects.create(bench.pod("once", {"command": ["sleep", "600"]}, restartPolicy="Never"))
    await objects.pod_when("orphan", ready)
    await objects.pod_when("once", ready)
    bench.kill()
    bench.start()
    pod = await objects.pod_when(
        "orphan", lambda pod: container(pod)["restartCount"] == 1 and ready(pod)
    )
    assert container(pod)["lastState"]["terminated"]["exitCode"] == 137
    once = await objects.pod_when("once", lambda pod: pod["status"]["phase"] == "Failed")
    assert container(once)["restartCount"] == 0


async def test_sigterm_to_the_node_process_stops_containers_in_good_order(
    bench: NodeBench, objects: Watcher, tmp_path: Path
) -> None:
    script = (
        "trap 'echo stopped > /bench-host/end; exit 0' TERM; "
        "touch /bench-host/up; while :; do sleep 0.1; done"
    )
    main = {
        "command": ["sh", "-c", script],
        "volumeMounts": [{"name": "host", "mountPath": "/bench-host"}],
        "readinessProbe": {
            "exec": {"command": ["test", "-e", "/bench-host/up"]},
            "periodSeconds": 1,
        },
    }
    host = {"name": "host", "hostPath": {"path": str(tmp_path)}}
    await objects.create(bench.pod("orderly", main, volumes=[host]))
    await objects.pod_when("orderly", ready)
    bench.stop()
    assert (tmp_path / "end").read_text() == "stopped\n"
    assert not any((bench.directory / "pods").glob("*/*"))
    # Back on, so that the pod can be deleted in order.
    bench.start()


async def test_a_hollow_node_makes_pods_ready_without_processes(
    cluster: Cluster, objects: Watcher, tmp_path: Path
) -> None:
    hollow = NodeBench(cluster, tmp_path / "hollow", hollow=True)
    try:
        hollow.start()
        init = [{"name": "i", "image": "nobody/has:this", "command": ["false"]}]
        probe = {"httpGet": {"port": 8000}}
        main = {"image": "nobody/has:this", "readinessProbe": probe}
        names = [f"hollow-{i}" for i in range(20)]
        for name in names:
            await objects.create(hollow.pod(name, main, initContainers=init))
        pods = [await objects.pod_when(name, ready) for name in names]
        assert len({pod["status"]["podIP"] for pod in pods}) == 20
        for name in names:
            await objects.delete(name)
        for name in names:
            await objects.gone(name)
    finally:
        hollow.close()


def test_kubectl_reads_logs_of_this_run_and_the_one_before(
    cluster: Cluster, namespace: str
) -> None:
    script = "trap 'exit 0' TERM; echo one; echo two; while :; do sleep 0.2; done"
    cluster.kubectl(
        "run", "talk", f"--namespace={namespace}", "--image=disaggpair/operator:dev",
        "--command", "--", "sh", "-c", script,
    )  # fmt: skip
    wait = (f"--namespace={namespace}", "--timeout=60s")
    cluster.kubectl("wait", "--for=condition=Ready", "pod/talk", *wait, timeout_s=70)

    def logs(*options: str) -> str:
        return cluster.kubectl("logs", "talk", f"--namespace={namespace}", *options)

    assert logs() == "one\ntwo\n"
    assert logs("--tail=1") == "two\n"
    assert logs("--limit-bytes=2") == "on"
    assert logs("--timestamps", "--tail=1").endswith("Z two\n")
    assert logs("--since=1h") == "one\ntwo\n"
    with pytest.raises(ToolError, match="has no log yet"):
        logs("--previous")
    cluster.kubectl(
        "annotate", "pod", "talk", f"--namespace={namespace}", f"{ANNOTATION}=kill=talk"
    )
    cluster.kubectl(
        "wait", "--for=jsonpath={.status.containerStatuses[0].restartCount}=1", "pod/talk", *wait,
        timeout_s=70,
    )  # fmt: skip
    assert logs("--previous") == "one\ntwo\n"


def test_kubectl_follows_a_log_to_its_end(cluster: Cluster, namespace: str) -> None:
    script = "for i in 1 2 3; do sleep 0.3; echo $i; done"
    cluster.kubectl(
        "run", "count", f"--namespace={namespace}", "--image=disaggpair/operator:dev",
        "--restart=Never", "--command", "--", "sh", "-c", script,
    )  # fmt: skip
    followed = cluster.kubectl(
        "logs", "count", f"--namespace={namespace}", "--follow", "--pod-running-timeout=60s"
    )
    assert followed == "1\n2\n3\n"


async def test_the_log_endpoint_serves_the_api_server_alone(
    cluster: Cluster, objects: Watcher
) -> None:
    node = await objects.api.get("/api/v1/nodes/p5en-a-1")
    address = next(
        item["address"] for item in node["status"]["addresses"] if item["type"] == "InternalIP"
    )
    pki = cluster.run_dir / "pki"
    url = f"https://{address}:10250/healthz"
    tls = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get(url, ssl=tls)
        tls.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        async with session.get(url, ssl=tls) as answer:
            assert answer.status == 403
        tls = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        tls.load_cert_chain(pki / "kubelet-client.crt", pki / "kubelet-client.key")
        async with session.get(url, ssl=tls) as answer:
            assert await answer.text() == "ok"
