"""What the chart renders, as objects, for a matrix of values."""

import argparse
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from disaggpair_bed.tools import find_tools
from disaggpair_operator import names
from disaggpair_operator.api.crd import CRD_NAME, crd
from disaggpair_operator.command import add_arguments, settings_from

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "disaggpair"
RELEASES = ("1.30", "1.37")

Object = dict[str, Any]
Render = Callable[..., list[Object]]

ALL_SET: Object = {
    "image": {"repository": "registry.example/op", "tag": "v9", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "pull"}],
    "crds": {"install": True, "keep": False},
    "settings": {
        "bindAddress": "PodIP",
        "routerImage": "registry.example/router:v9",
        "logLevel": "DEBUG",
        "resyncSeconds": 60,
    },
    "watchNamespaces": ["team-a", "team-b"],
    "serviceAccount": {"create": True, "name": "op", "annotations": {"a": "b"}},
    "metrics": {"enabled": True, "service": {"enabled": True, "annotations": {"scrape": "yes"}}},
    "resources": {"limits": {"cpu": 1, "memory": "1Gi"}},
    "podAnnotations": {"a": "b"},
    "podLabels": {"team": "x"},
    "nodeSelector": {"pool": "system"},
    "tolerations": [{"key": "system", "operator": "Exists"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}
                ]
            }
        }
    },
    "priorityClassName": "system-cluster-critical",
    "fullnameOverride": "pairs",
}
MATRIX: dict[str, Object] = {
    "defaults": {},
    "all-set": ALL_SET,
    "no-crd": {"crds": {"install": False}},
    "no-rights": {"rbac": {"create": False}},
    "one-namespace": {"watchNamespaces": ["team-a"], "rbac": {"readNodes": False}},
    "own-account": {"serviceAccount": {"create": False, "name": "mine"}},
    "no-metrics": {"metrics": {"enabled": False, "service": {"enabled": True}}},
    "long-name": {"fullnameOverride": "x" * 63, "metrics": {"service": {"enabled": True}}},
}


@pytest.fixture(scope="session")
def helm(say: Callable[[str], None]) -> Path:
    return find_tools(say)["helm"]


@pytest.fixture
def render(helm: Path, tmp_path: Path) -> Render:
    """Renders the chart with values; raises Refused with Helm's sentence."""

    def call(values: Object | None = None) -> list[Object]:
        file = tmp_path / "values.yaml"
        file.write_text(yaml.safe_dump(values or {}))
        command = [str(helm), "template", "rel", str(CHART), "--namespace=sys", "-f", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Refused(done.stderr)
        return [document for document in yaml.safe_load_all(done.stdout) if document]

    return call


class Refused(Exception):
    """Helm did not render; the text is its message."""


def of_kind(objects: Iterable[Object], kind: str) -> list[Object]:
    return [obj for obj in objects if obj["kind"] == kind]


def container(objects: Iterable[Object]) -> Object:
    (deployment,) = of_kind(objects, "Deployment")
    (only,) = deployment["spec"]["template"]["spec"]["containers"]
    found: Object = only
    return found


def flags(objects: Iterable[Object]) -> dict[str, list[str]]:
    """Values of each flag of the operator's container."""
    command, *words = container(objects)["args"]
    assert command == "operator"
    found: dict[str, list[str]] = {}
    for flag, value in zip(words[::2], words[1::2], strict=True):
        found.setdefault(flag, []).append(value)
    return found


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX)
def test_every_object_is_valid(values: Object, release: str, render: Render) -> None:
    for obj in render(values):
        kubernetes_validate.validate(obj, release, strict=True)
        assert "namespace" not in obj["metadata"] or len(obj["metadata"]["name"]) <= 63
        assert obj["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"


def test_the_chart_has_no_lint(helm: Path) -> None:
    done = subprocess.run(
        [helm, "lint", "--strict", CHART], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_the_rendered_crd_is_the_generated_one(render: Render) -> None:
    (rendered,) = of_kind(render(), "CustomResourceDefinition")
    assert rendered["metadata"]["name"] == CRD_NAME
    assert rendered["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert rendered["spec"] == crd()["spec"]


def test_the_crd_can_be_left_out_or_go_with_the_release(render: Render) -> None:
    assert of_kind(render({"crds": {"install": False}}), "CustomResourceDefinition") == []
    (rendered,) = of_kind(render({"crds": {"keep": False}}), "CustomResourceDefinition")
    assert "annotations" not in rendered["metadata"]


def test_named_namespaces_get_a_role_each_and_no_other_right(render: Render) -> None:
    everywhere = render({"rbac": {"aggregate": False}})
    bound = render(
        {"watchNamespaces": ["a", "b"], "rbac": {"aggregate": False, "readNodes": False}}
    )
    assert of_kind(bound, "ClusterRole") == of_kind(bound, "ClusterRoleBinding") == []
    roles = of_kind(bound, "Role")
    assert [role["metadata"]["namespace"] for role in roles] == ["a", "b"]
    (cluster_role,) = of_kind(everywhere, "ClusterRole")
    nodes = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}
    assert [*roles[0]["rules"], nodes] == cluster_role["rules"]
    assert flags(bound)["--namespace"] == ["a", "b"]
    for binding in of_kind(bound, "RoleBinding"):
        assert binding["roleRef"]["name"] == roles[0]["metadata"]["name"]
        assert binding["subjects"][0]["namespace"] == "sys"


def test_reading_nodes_is_the_one_cluster_wide_right_beside_namespaces(render: Render) -> None:
    (role,) = of_kind(
        render({"watchNamespaces": ["a"], "rbac": {"aggregate": False}}), "ClusterRole"
    )
    assert [rule["resources"] for rule in role["rules"]] == [["nodes"]]


def test_users_roles_are_extended(render: Render) -> None:
    label = "rbac.authorization.k8s.io/aggregate-to-view"
    (view,) = [r for r in of_kind(render(), "ClusterRole") if label in r["metadata"]["labels"]]
    assert view["rules"][0]["apiGroups"] == [names.GROUP]
    assert set(view["rules"][0]["verbs"]) == {"get", "list", "watch"}


def test_settings_reach_the_command_line(render: Render) -> None:
    assert flags(render(ALL_SET)) == {
        "--bind-address": ["PodIP"],
        "--router-image": ["registry.example/router:v9"],
        "--router-pull-policy": ["Always"],
        "--health-port": ["8080"],
        "--metrics-port": ["9090"],
        "--resync-seconds": ["60"],
        "--log-level": ["DEBUG"],
        "--namespace": ["team-a", "team-b"],
    }
    assert flags(render({"metrics": {"enabled": False}}))["--metrics-port"] == ["0"]


def test_the_routers_run_from_the_operators_image_by_default(render: Render) -> None:
    objects = render()
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    assert container(objects)["image"] == f"disaggpair/operator:{version}"
    assert flags(objects)["--router-image"] == [f"disaggpair/operator:{version}"]


def test_the_command_line_is_one_the_operator_takes(render: Render) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    settings = settings_from(parser.parse_args(container(render(ALL_SET))["args"][1:]), "10.0.0.1")
    assert settings.namespaces == ("team-a", "team-b")
    assert settings.resync_s == 60


def test_one_operator_runs_at_a_time(render: Render) -> None:
    (deployment,) = of_kind(render(), "Deployment")
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}


def test_the_metrics_service_reaches_the_pod(render: Render) -> None:
    objects = render({"metrics": {"service": {"enabled": True}}})
    (service,) = of_kind(objects, "Service")
    (deployment,) = of_kind(objects, "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"].items()
    assert service["spec"]["selector"].items() <= labels
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels


def test_the_pod_monitor_finds_the_operators_pod_and_no_pairs(render: Render) -> None:
    objects = render({"podMonitor": {"enabled": True, "labels": {"release": "prometheus"}}})
    (monitor,) = of_kind(objects, "PodMonitor")
    (deployment,) = of_kind(objects, "Deployment")
    template = deployment["spec"]["template"]
    selector = monitor["spec"]["selector"]
    assert selector["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert selector["matchExpressions"] == [{"key": names.PAIR_LABEL, "operator": "DoesNotExist"}]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    ports = template["spec"]["containers"][0]["ports"]
    assert endpoint["port"] in [port["name"] for port in ports]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"


@pytest.mark.parametrize(
    "values", [{}, {"metrics": {"enabled": False}, "podMonitor": {"enabled": True}}]
)
def test_there_is_no_pod_monitor_without_metrics_or_by_default(
    values: Object, render: Render
) -> None:
    assert not of_kind(render(values), "PodMonitor")


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"image": {"tga": "v1"}}, "at '/image': additional properties 'tga' not allowed"),
        ({"watchNamespace": ["a"]}, "additional properties 'watchNamespace' not allowed"),
        ({"settings": {"bindAddress": "0.0.0.0"}}, "'AllInterfaces', 'PodIP'"),
        ({"settings": {"logLevel": "debug"}}, "'DEBUG', 'INFO', 'WARNING', 'ERROR'"),
        ({"settings": {"resyncSeconds": 0}}, "minimum: got 0, want 1"),
        ({"crds": {"install": "yes"}}, "got string, want boolean"),
        ({"watchNamespaces": ["Team"]}, "'Team' does not match pattern"),
        ({"watchNamespaces": ["a", "a"]}, "are equal"),
        ({"image": {"repository": ""}}, "minLength: got 0, want 1"),
    ],
)
def test_a_wrong_value_is_refused_with_a_sentence(
    values: Object, sentence: str, render: Render
) -> None:
    with pytest.raises(Refused) as refusal:
        render(values)
    assert sentence in str(refusal.value)
