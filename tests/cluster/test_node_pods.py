"""What a process node does with pods, seen through a real API server."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from disaggpair_bed.cluster import Cluster
from disaggpair_bed.node.view import HostView
from disaggpair_bed.node_bench import (
    TOOL,
    NodeBench,
    Watcher,
    container,
    ended,
    ready,
    waiting,
)

SERVE = """
import http.server, os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        name = self.path.strip("/") + self.headers.get("X-Suffix", "")
        self.send_response(200 if name in open("/run/bench/ok").read().split() else 503)
        self.end_headers()
    def log_message(self, *_): pass
http.server.HTTPServer((os.environ["POD_IP"], 8000), Handler).serve_forever()
"""
POD_IP = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}


@pytest.fixture(scope="module")
def bench(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeBench]:
    bench = NodeBench(cluster, tmp_path_factory.mktemp("bench"))
    try:
        bench.start()
        yield bench
    finally:
        bench.close()


def shell(script: str, **fields: Any) -> dict[str, Any]:
    """A container that runs a script. `: up` in front of a wait makes the shell die by SIGTERM."""
    return {"command": ["sh", "-c", script], **fields}


def report(**entries: str) -> str:
    """A script that ends with a JSON object as its termination message."""
    lines = " ".join(f'"{key}" "{value}"' for key, value in entries.items())
    program = "import json,sys; a=sys.argv[1:]; print(json.dumps(dict(zip(a[::2],a[1::2]))))"
    return f"python3 -c '{program}' {lines} > /dev/termination-log"


def message(pod: dict[str, Any]) -> dict[str, str]:
    result: dict[str, str] = json.loads(ended(pod)["message"])
    return result


async def test_a_container_sees_its_pod_in_its_environment(
    bench: NodeBench, objects: Watcher
) -> None:
    def field(name: str, path: str) -> dict[str, Any]:
        return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}

    env = [
        POD_IP,
        field("NAME", "metadata.name"),
        field("ROLE", "metadata.labels['role']"),
        field("NODE", "spec.nodeName"),
        {"name": "URL", "value": "http://$(POD_IP):8000"},
        {"name": "FROM_SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {
            "name": "CPU",
            "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}},
        },
    ]
    script = report(
        ip="$POD_IP", name="$NAME", role="$ROLE", node="$NODE", url="$URL", arg="$0",
        secret="$FROM_SECRET", config="$FROM_MAP", cpu="$CPU", host="$(hostname)",
    )  # fmt: skip
    await objects.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "s"},
            "stringData": {"k": "hush"},
        }
    )
    await objects.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "cm"},
            "data": {"FROM_MAP": "yes"},
        }
    )
    await objects.create(
        bench.pod(
            "env",
            {
                "command": ["sh", "-c", script],
                "args": ["$(POD_IP)"],
                "env": env,
                "envFrom": [{"configMapRef": {"name": "cm"}}],
                "resources": {"limits": {"cpu": "1500m"}},
            },
            restartPolicy="Never",
            metadata={"labels": {"role": "prefill"}},
        )
    )
    pod = await objects.pod_when("env", ended)
    ip = pod["status"]["podIP"]
    assert message(pod) == {
        "ip": ip,
        "name": "env",
        "role": "prefill",
        "node": bench.name,
        "url": f"http://{ip}:8000",
        "arg": ip,
        "secret": "hush",
        "config": "yes",
        "cpu": "2",
        "host": "env",
    }
    assert pod["status"]["phase"] == "Succeeded"
    assert pod["status"]["hostIP"] == ip.rpartition(".")[0] + ".1"


async def test_the_token_of_a_pod_works_on_the_api_server(
    bench: NodeBench, objects: Watcher
) -> None:
    program = """
import os, ssl, urllib.request, json
d = "/var/run/secrets/kubernetes.io/serviceaccount"
read = lambda name: open(f"{d}/{name}").read()
url = "https://{KUBERNETES_SERVICE_HOST}:{KUBERNETES_SERVICE_PORT}".format(**os.environ)
body = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).encode()
request = urllib.request.Request(
    url + "/apis/authentication.k8s.io/v1/selfsubjectreviews", body,
    {"Authorization": "Bearer " + read("token"), "Content-Type": "application/json"})
tls = ssl.create_default_context(cafile=f"{d}/ca.crt")
me = json.load(urllib.request.urlopen(request, context=tls))["status"]["userInfo"]
pod = me["extra"]["authentication.kubernetes.io/pod-name"]
open("/dev/termination-log", "w").write(json.dumps([me["username"], pod, read("namespace")]))
"""
    await objects.create(
        bench.pod("token", {"command": ["python3", "-c", program]}, restartPolicy="Never")
    )
    pod = await objects.pod_when("token", ended)
    namespace = objects.namespace
    assert json.loads(ended(pod)["message"]) == [
        f"system:serviceaccount:{namespace}:default",
        ["token"],
        namespace,
    ]


async def test_volumes_lie_at_their_mount_paths(bench: NodeBench, objects: Watcher) -> None:
    await objects.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "cm"},
            "data": {"router.json": "{}", "other": "x"},
        }
    )
    volumes = [
        {"name": "cm", "configMap": {"name": "cm"}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
        {"name": "work", "emptyDir": {}},
        {
            "name": "info",
            "downwardAPI": {"items": [{"path": "uid", "fieldRef": {"fieldPath": "metadata.uid"}}]},
        },
    ]
    mounts = [
        {"name": "cm", "mountPath": "/etc/disaggpair"},
        {"name": "cm", "mountPath": "/etc/one-file", "subPath": "other"},
        {"name": "shm", "mountPath": "/dev/shm"},
        {"name": "work", "mountPath": "/bench-work/deep"},
        {"name": "info", "mountPath": "/run/info"},
    ]
    script = "echo 1 > /dev/shm/x; echo 2 > /bench-work/deep/y; " + report(
        config="$(cat /etc/disaggpair/router.json)",
        one="$(cat /etc/one-file)",
        shm="$(stat -f -c %T /dev/shm) $(ls /dev/shm)",
        uid="$(cat /run/info/uid)",
        denied="$(touch /etc/disaggpair/x 2>/dev/null || echo denied)",
    )
    second = report(y="$(cat /bench-work/deep/y)")
    both = {"volumeMounts": mounts}
    await objects.create(
        bench.pod(
            "volumes",
            shell(second, name="after", **both),
            initContainers=[{"name": "main", "image": TOOL, **shell(script, **both)}],
            volumes=volumes,
            restartPolicy="Never",
        )
    )
    pod = await objects.pod_when("volumes", lambda pod: bool(ended(pod, "after")))
    first = ended(pod, "main", "initContainerStatuses")
    assert json.loads(first["message"]) == {
        "config": "{}",
        "one": "x",
        "shm": "tmpfs x",
        "uid": pod["metadata"]["uid"],
        "denied": "denied",
    }
    assert json.loads(ended(pod, "after")["message"]) == {"y": "2"}
    for path in ("/etc/disaggpair", "/etc/one-file", "/bench-work", "/run/info"):
        assert HostView().kind(path) is None


async def test_a_changed_config_map_reaches_a_running_container(
    bench: NodeBench, objects: Watcher
) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm"}}
    await objects.create({**config, "data": {"turn": "one"}})
    script = 'until [ "$(cat /etc/bench/turn)" = two ]; do sleep 0.2; done'
    mount = [{"name": "cm", "mountPath": "/etc/bench"}]
    await objects.create(
        bench.pod(
            "refresh",
            shell(script, volumeMounts=mount),
            volumes=[{"name": "cm", "configMap": {"name": "cm"}}],
            restartPolicy="Never",
        )
    )
    await objects.pod_when("refresh", ready)
    await objects.patch("configmaps", "cm", {"data": {"turn": "two"}})
    pod = await objects.pod_when("refresh", ended)
    assert pod["status"]["phase"] == "Succeeded"


async def test_init_containers_run_one_after_the_other(bench: NodeBench, objects: Watcher) -> None:
    mount = {"volumeMounts": [{"name": "v", "mountPath": "/bench-v"}]}
    # The second one fails twice before it passes: init containers restart under Always.
    flaky = "echo b >> /bench-v/order; [ $(grep -c b /bench-v/order) = 3 ]"
    init = [
        {"name": "a", "image": TOOL, **shell("echo a >> /bench-v/order", **mount)},
        {"name": "b", "image": TOOL, **shell(flaky, **mount)},
    ]
    main = shell("tr '\\n' ' ' < /bench-v/order > /dev/termination-log; sleep 600", **mount)
    await objects.create(
        bench.pod("init", main, initContainers=init, volumes=[{"name": "v", "emptyDir": {}}])
    )
    pod = await objects.pod_when("init", ready)
    assert ended(pod, "a", "initContainerStatuses")["reason"] == "Completed"
    assert container(pod, "b", "initContainerStatuses")["restartCount"] == 2
    await objects.delete("init", gracePeriodSeconds=1)
    last = await objects.gone("init")
    assert ended(last)["message"] == "a b b b "


async def test_a_failed_init_container_fails_a_pod_that_never_restarts(
    bench: NodeBench, objects: Watcher
) -> None:
    init = [{"name": "i", "image": TOOL, **shell("exit 4")}]
    await objects.create(
        bench.pod("init-fails", shell("true"), initContainers=init, restartPolicy="Never")
    )
    pod = await objects.pod_when("init-fails", lambda pod: pod["status"]["phase"] == "Failed")
    assert ended(pod, "i", "initContainerStatuses")["exitCode"] == 4
    assert waiting(pod) == "PodInitializing"


async def test_a_sidecar_starts_first_and_ends_last(bench: NodeBench, objects: Watcher) -> None:
    mount = {"volumeMounts": [{"name": "v", "mountPath": "/bench-v"}]}
    trap = "trap 'cat /bench-v/log > /dev/termination-log; exit 0' TERM; "
    sidecar = {
        "name": "side",
        "image": TOOL,
        "restartPolicy": "Always",
        "startupProbe": {"exec": {"command": ["test", "-e", "/bench-v/up"]}, "periodSeconds": 1},
        **shell(trap + "touch /bench-v/up; while :; do sleep 0.1; done", **mount),
    }
    main = shell("test -e /bench-v/up && echo main > /bench-v/log", **mount)
    await objects.create(
        bench.pod(
            "sidecar",
            main,
            initContainers=[sidecar],
            volumes=[{"name": "v", "emptyDir": {}}],
            restartPolicy="Never",
            terminationGracePeriodSeconds=30,
        )
    )
    pod = await objects.pod_when("sidecar", lambda pod: pod["status"]["phase"] == "Succeeded")
    side = await objects.pod_when(
        "sidecar", lambda pod: bool(ended(pod, "side", "initContainerStatuses"))
    )
    assert ended(pod)["exitCode"] == 0
    assert ended(side, "side", "initContainerStatuses")["message"] == "main\n"


async def test_an_unknown_image_is_named_and_found_once_it_is_there(
    bench: NodeBench, objects: Watcher
) -> None:
    await objects.create(bench.pod("pull", {"image": "bench/late:1", "args": ["sleep", "600"]}))
    pod = await objects.pod_when("pull", lambda pod: waiting(pod) == "ImagePullBackOff")
    text = container(pod)["state"]["waiting"]["message"]
    assert "image 'bench/late:1' is not in" in text
    assert f"known images: {TOOL}" in text
    images = yaml.safe_load(bench.images.read_text())
    images["images"]["bench/late:1"] = {"entrypoint": ["env"]}
    bench.images.write_text(yaml.safe_dump(images))
    await objects.pod_when("pull", ready)


async def test_a_missing_config_map_holds_the_container_back_until_it_is_there(
    bench: NodeBench, objects: Watcher
) -> None:
    env = [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "late", "key": "k"}}}]
    await objects.create(bench.pod("config", shell("sleep 600", env=env)))
    pod = await objects.pod_when("config", lambda pod: waiting(pod) == "CreateContainerConfigError")
    assert container(pod)["state"]["waiting"]["message"] == "configmap 'late' not found"
    await objects.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}, "data": {"k": "v"}}
    )
    await objects.pod_when("config", ready)


async def test_a_missing_volume_is_named_until_it_is_there(
    bench: NodeBench, objects: Watcher
) -> None:
    init = [{"name": "i", "image": TOOL, "command": ["sleep", "600"]}]
    volume = {"name": "v", "configMap": {"name": "late"}}
    await objects.create(bench.pod("mount", shell("true"), initContainers=init, volumes=[volume]))
    # The node may be refused for a moment, until the API server knows what the pod refers to.
    message = "volume 'v': configmap 'late' not found"
    await objects.pod_when(
        "mount",
        lambda pod: container(pod).get("state", {}).get("waiting", {}).get("message") == message,
    )
    await objects.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}})
    pod = await objects.pod_when("mount", lambda pod: waiting(pod) == "PodInitializing")
    assert "message" not in container(pod)["state"]["waiting"]


async def test_a_persistent_volume_is_refused_with_what_there_is(
    bench: NodeBench, objects: Watcher
) -> None:
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    await objects.create(bench.pod("claim", shell("true"), volumes=[claim]))
    pod = await objects.pod_when("claim", lambda pod: waiting(pod) == "ContainerCreating")
    assert container(pod)["state"]["waiting"]["message"] == (
        "volume 'v': persistentVolumeClaim is not supported by process nodes; "
        "allowed: configMap, secret, downwardAPI, projected, emptyDir, hostPath"
    )


async def test_a_crashing_container_backs_off_and_shows_its_last_end(
    bench: NodeBench, objects: Watcher
) -> None:
    script = "echo it broke; exit 7"
    await objects.create(
        bench.pod("crash", shell(script, terminationMessagePolicy="FallbackToLogsOnError"))
    )
    pod = await objects.pod_when(
        "crash",
        lambda pod: waiting(pod) == "CrashLoopBackOff" and container(pod)["restartCount"] >= 2,
    )
    last = container(pod)["lastState"]["terminated"]
    assert (last["exitCode"], last["reason"], last["message"]) == (7, "Error", "it broke\n")
    assert pod["status"]["phase"] == "Running"
    assert not ready(pod)


async def test_on_failure_restarts_until_success(bench: NodeBench, objects: Watcher) -> None:
    mount = {"volumeMounts": [{"name": "v", "mountPath": "/bench-v"}]}
    script = "echo x >> /bench-v/runs; [ $(wc -l < /bench-v/runs) = 2 ]"
    await objects.create(
        bench.pod(
            "retry",
            shell(script, **mount),
            volumes=[{"name": "v", "emptyDir": {}}],
            restartPolicy="OnFailure",
        )
    )
    pod = await objects.pod_when("retry", lambda pod: pod["status"]["phase"] == "Succeeded")
    assert container(pod)["restartCount"] == 1


async def test_a_command_that_is_not_there_is_a_start_error(
    bench: NodeBench, objects: Watcher
) -> None:
    await objects.create(bench.pod("typo", {"command": ["vlm"]}, restartPolicy="Never"))
    pod = await objects.pod_when("typo", lambda pod: pod["status"]["phase"] == "Failed")
    assert ended(pod)["reason"] == "StartError"
    assert ended(pod)["message"] == "exec 'vlm': No such file or directory"


async def test_probes_decide_on_readiness_and_restarts(bench: NodeBench, objects: Watcher) -> None:
    def get(path: str, **fields: Any) -> dict[str, Any]:
        headers = [{"name": "X-Suffix", "value": "!"}]
        probe = {"httpGet": {"path": path, "port": "http", "httpHeaders": headers}}
        return {**probe, "periodSeconds": 1, "failureThreshold": 1, **fields}

    # The server reads from an annotation which of the three it answers with 200.
    ok = {"path": "ok", "fieldRef": {"fieldPath": "metadata.annotations['ok']"}}
    await objects.create(
        bench.pod(
            "probes",
            {
                "command": ["python3", "-c", SERVE],
                "env": [POD_IP],
                "ports": [{"name": "http", "containerPort": 8000}],
                "startupProbe": get("/started", failureThreshold=100),
                "livenessProbe": get("/alive"),
                "readinessProbe": get("/ready"),
                "volumeMounts": [{"name": "v", "mountPath": "/run/bench"}],
            },
            volumes=[{"name": "v", "downwardAPI": {"items": [ok]}}],
            metadata={"annotations": {"ok": "ready!"}},
        )
    )
    # Not alive, and yet nothing restarts before the startup probe has passed.
    pod = await objects.pod_when("probes", lambda pod: "running" in container(pod).get("state", {}))
    assert (container(pod)["started"], container(pod)["ready"]) == (False, False)
    await objects.annotate("probes", "ok", "started! alive! ready!")
    pod = await objects.pod_when("probes", ready)
    assert container(pod)["restartCount"] == 0
    await objects.annotate("probes", "ok", "started! alive!")
    pod = await objects.pod_when("probes", lambda pod: not ready(pod))
    assert (container(pod)["started"], container(pod)["restartCount"]) == (True, 0)
    await objects.annotate("probes", "ok", "started!")
    await objects.pod_when("probes", lambda pod: container(pod)["restartCount"] >= 1)
    await objects.annotate("probes", "ok", "started! alive! ready!")
    await objects.pod_when("probes", ready)


async def test_exec_and_tcp_probes_run_where_the_container_is(
    bench: NodeBench, objects: Watcher
) -> None:
    mount = [{"name": "v", "mountPath": "/bench-v"}]
    listen = "import os, socket; s = socket.create_server((os.environ['POD_IP'], 9000)); s.accept()"
    script = 'touch /bench-v/up; while :; do python3 -c "$0"; done'
    await objects.create(
        bench.pod(
            "exec-probe",
            {
                "command": ["sh", "-c", script, listen],
                "env": [POD_IP],
                "volumeMounts": mount,
                "startupProbe": {
                    "exec": {"command": ["test", "-e", "/bench-v/up"]},
                    "periodSeconds": 1,
                },
                "readinessProbe": {"tcpSocket": {"port": 9000}, "periodSeconds": 1},
            },
            volumes=[{"name": "v", "emptyDir": {}}],
        )
    )
    await objects.pod_when("exec-probe", ready)


async def test_a_deleted_pod_stops_in_order_and_reports_its_end(
    bench: NodeBench, objects: Watcher
) -> None:
    mount = [{"name": "v", "mountPath": "/bench-v"}]
    script = (
        "trap 'cat /bench-v/hook > /dev/termination-log; exit 3' TERM; "
        "touch /bench-v/up; while :; do sleep 0.1; done"
    )
    hook = {"exec": {"command": ["sh", "-c", "echo hook first > /bench-v/hook"]}}
    up = {"exec": {"command": ["test", "-e", "/bench-v/up"]}, "periodSeconds": 1}
    await objects.create(
        bench.pod(
            "stop",
            shell(script, volumeMounts=mount, lifecycle={"preStop": hook}, readinessProbe=up),
            volumes=[{"name": "v", "emptyDir": {}}],
            terminationGracePeriodSeconds=30,
        )
    )
    await objects.pod_when("stop", ready)
    await objects.delete("stop")
    last = await objects.gone("stop")
    assert (ended(last)["exitCode"], ended(last)["message"]) == (3, "hook first\n")
    assert last["status"]["phase"] == "Failed"


async def test_a_container_that_ignores_sigterm_is_killed_after_its_grace(
    bench: NodeBench, objects: Watcher
) -> None:
    # As process 1 of its namespace, sleep has no handler, so SIGTERM does nothing to it.
    await objects.create(bench.pod("deaf", {"command": ["sleep", "600"]}))
    await objects.pod_when("deaf", ready)
    await objects.delete("deaf")
    last = await objects.gone("deaf")
    assert (ended(last)["exitCode"], ended(last)["signal"]) == (137, 9)


async def test_a_pod_deleted_by_force_is_killed(bench: NodeBench, objects: Watcher) -> None:
    first = await objects.create(bench.pod("forced", {"command": ["sleep", "600"]}))
    pod = await objects.pod_when("forced", ready)
    await objects.delete("forced", gracePeriodSeconds=0)
    # The same name again, at once: the new pod is another one with another address.
    await objects.create(bench.pod("forced", {"command": ["sleep", "600"]}))
    again = await objects.pod_when("forced", ready)
    assert again["metadata"]["uid"] != first["metadata"]["uid"]
    assert again["status"]["podIP"] != pod["status"]["podIP"]
