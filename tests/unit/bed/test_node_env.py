import base64
from typing import Any

import pytest

from disaggpair_bed.node.downward import Placement
from disaggpair_bed.node.env import Sources, argv, pod_env, process_env, references
from disaggpair_bed.node.errors import MissingReference, SpecError
from disaggpair_bed.node.images import Image
from disaggpair_bed.node.spec import Container, Pod, parse_pod

PLACE = Placement(
    node="n1",
    pod_ip="127.11.0.2",
    host_ip="127.11.0.1",
    allocatable={"cpu": "192", "memory": "2Ti"},
    server_host="127.0.0.1",
    server_port="6443",
)
SOURCES = Sources(
    config_maps={"cm": {"data": {"k": "v"}, "binaryData": {}}, "gone": None},
    secrets={"s": {"data": {"key": base64.b64encode(b"hidden").decode()}}},
)


def container(**fields: Any) -> Container:
    return pod(**fields).containers[0]


def pod(**fields: Any) -> Pod:
    return parse_pod(
        {
            "metadata": {
                "name": "p",
                "namespace": "ns",
                "uid": "u-1",
                "labels": {"role": "prefill", "a": 'say "x"'},
                "annotations": {"note": "yes"},
            },
            "spec": {
                "serviceAccountName": "sa",
                "containers": [{"name": "c", "image": "i", **fields}],
            },
        }
    )


def value_from(**source: Any) -> list[dict[str, Any]]:
    return [{"name": "X", "valueFrom": source}]


def environment(**fields: Any) -> dict[str, str]:
    return pod_env(container(**fields), pod(**fields), PLACE, SOURCES)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "u-1"),
        ("metadata.labels['role']", "prefill"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['note']", "yes"),
        ("spec.nodeName", "n1"),
        ("spec.serviceAccountName", "sa"),
        ("status.podIP", "127.11.0.2"),
        ("status.podIPs", "127.11.0.2"),
        ("status.hostIP", "127.11.0.1"),
    ],
)
def test_a_field_of_the_pod_becomes_a_value(path: str, value: str) -> None:
    assert environment(env=value_from(fieldRef={"fieldPath": path}))["X"] == value


def test_an_unknown_field_is_refused_with_the_allowed_ones() -> None:
    with pytest.raises(SpecError, match=r"'status.phase' is not supported; allowed: .*podIP"):
        environment(env=value_from(fieldRef={"fieldPath": "status.phase"}))


def test_a_limit_becomes_a_value_and_defaults_to_the_node() -> None:
    env = [
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        {
            "name": "MEM",
            "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Gi"}},
        },
    ]
    got = environment(env=env, resources={"limits": {"cpu": "1500m"}})
    assert (got["CPU"], got["MEM"]) == ("2", "2048")


def test_values_refer_to_earlier_ones_and_to_the_api_server_only() -> None:
    env = [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "$(A)-$(C)-$(KUBERNETES_SERVICE_PORT)-$(k)"},
        {"name": "C", "value": "late"},
    ]
    got = environment(env=env, envFrom=[{"configMapRef": {"name": "cm"}}])
    assert got["B"] == "1-$(C)-6443-v"


def test_env_wins_over_env_from_and_both_over_the_api_servers_address() -> None:
    env = [{"name": "k", "value": "mine"}, {"name": "KUBERNETES_SERVICE_HOST", "value": "h"}]
    got = environment(env=env, envFrom=[{"configMapRef": {"name": "cm"}}])
    assert (got["k"], got["KUBERNETES_SERVICE_HOST"]) == ("mine", "h")


def test_env_from_takes_a_prefix() -> None:
    got = environment(envFrom=[{"prefix": "P_", "secretRef": {"name": "s"}}])
    assert got["P_key"] == "hidden"


def test_keys_of_secrets_and_config_maps_become_values() -> None:
    assert environment(env=value_from(secretKeyRef={"name": "s", "key": "key"}))["X"] == "hidden"
    assert environment(env=value_from(configMapKeyRef={"name": "cm", "key": "k"}))["X"] == "v"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"envFrom": [{"configMapRef": {"name": "gone"}}]}, "configmap 'gone' not found"),
        (
            {"env": value_from(configMapKeyRef={"name": "cm", "key": "q"})},
            "couldn't find key q in ConfigMap cm",
        ),
        ({"env": value_from(secretKeyRef={"name": "no", "key": "q"})}, "secret 'no' not found"),
    ],
)
def test_a_missing_reference_holds_the_container_back(fields: Any, message: str) -> None:
    with pytest.raises(MissingReference, match=message):
        environment(**fields)


def test_an_optional_reference_may_be_missing() -> None:
    ref = {"name": "gone", "key": "q", "optional": True}
    assert "X" not in environment(env=value_from(configMapKeyRef=ref))
    assert environment(envFrom=[{"secretRef": {"name": "no", "optional": True}}])


def test_references_lists_all_an_environment_needs() -> None:
    found = references(
        container(
            env=value_from(secretKeyRef={"name": "s", "key": "x"}),
            envFrom=[{"configMapRef": {"name": "cm"}}],
        )
    )
    assert set(found) == {("Secret", "s"), ("ConfigMap", "cm")}


def test_the_images_path_comes_first_and_the_pods_values_win() -> None:
    image = Image(path=("/img/bin",), env={"A": "image", "B": "image"})
    env = process_env(image, {"A": "pod"}, "/scratch", "host-1")
    assert env["PATH"].startswith("/img/bin:/usr/local/sbin")
    assert (env["A"], env["B"], env["HOME"], env["HOSTNAME"]) == (
        "pod",
        "image",
        "/scratch",
        "host-1",
    )


def test_the_machines_own_environment_does_not_reach_a_container(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OF_THE_MACHINE", "1")
    assert "OF_THE_MACHINE" not in process_env(Image(), {}, "/s", "h")


def test_command_replaces_the_entrypoint_and_args_follow() -> None:
    image = Image(entrypoint=("vllm", "serve"))
    assert argv(container(args=["M", "$(H)"]), image, {"H": "h"}) == ["vllm", "serve", "M", "h"]
    assert argv(container(command=["sh"], args=["-c"]), image, {}) == ["sh", "-c"]


def test_a_container_without_any_command_is_refused() -> None:
    with pytest.raises(SpecError, match="container c has no command and its image no entrypoint"):
        argv(container(), Image(), {})
