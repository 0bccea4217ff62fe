"""The examples for Prometheus find each pod of a pair once, and say which pair it is of."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from disaggpair_bed.builders import raw_pair
from disaggpair_operator.model import Facts
from disaggpair_operator.preview import preview

MONITORING = Path(__file__).parents[3] / "examples" / "monitoring"
Object = Mapping[str, Any]

WANTED = {
    "router": ("metrics", 9090),
    "prefill": ("http", 8000),
    "decode": ("http", 8000),
}


def workloads() -> dict[str, Object]:
    """Pod templates of a pair by role."""
    text = preview(yaml.safe_dump(raw_pair({})), Facts(router_image="example/router:v1"))
    return {
        obj["spec"]["template"]["metadata"]["labels"]["disaggpair.dev/role"]: obj["spec"][
            "template"
        ]
        for obj in yaml.safe_load_all(text)
        if obj["kind"] == "Deployment"
    }


def meta(name: str) -> str:
    """A label of a pod as discovery names it."""
    return "__meta_kubernetes_pod_label_" + re.sub(r"\W", "_", name)


def discovered(template: Object) -> Iterator[tuple[dict[str, str], int]]:
    """What discovery says of each port of a pod."""
    labels = template["metadata"]["labels"]
    (container,) = template["spec"]["containers"]
    for port in container["ports"]:
        yield (
            {
                **{meta(name): value for name, value in labels.items()},
                "__meta_kubernetes_namespace": "agents",
                "__meta_kubernetes_pod_name": "pod",
                "__meta_kubernetes_pod_container_port_name": port["name"],
            },
            port["containerPort"],
        )


def relabelled(found: dict[str, str], steps: list[dict[str, Any]]) -> dict[str, str] | None:
    """The labels of the target; None when it is dropped."""
    labels: dict[str, str] = {}
    for step in steps:
        (source,) = step["source_labels"]
        if step.get("action") == "keep":
            if not re.fullmatch(step["regex"], found.get(source, "")):
                return None
        else:
            labels[step["target_label"]] = found[source]
    return labels


def chosen(labels: Mapping[str, str], selector: str) -> bool:
    """Whether a label selector, written as text, takes a pod."""
    for part in re.split(r",(?![^(]*\))", selector):
        several = re.fullmatch(r"(\S+) in \(([^)]*)\)", part)
        if several:
            holds = labels.get(several[1]) in several[2].split(",")
        elif part.startswith("!"):
            holds = part[1:] not in labels
        else:
            name, _, value = part.partition("=")
            holds = labels.get(name) == value
        if not holds:
            return False
    return True


def jobs() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load((MONITORING / "prometheus.yaml").read_text())[
        "scrape_configs"
    ]
    return found


@pytest.mark.parametrize("role", WANTED)
def test_prometheus_scrapes_one_port_of_a_pod_and_knows_its_pair(role: str) -> None:
    template = workloads()[role]
    pod_labels = template["metadata"]["labels"]
    targets = [
        (job["job_name"], port, labels)
        for job in jobs()
        if chosen(pod_labels, job["kubernetes_sd_configs"][0]["selectors"][0]["label"])
        for found, port in discovered(template)
        if (labels := relabelled(found, job["relabel_configs"])) is not None
    ]
    ((job, port, labels),) = targets
    assert job == ("disaggpair-routers" if role == "router" else "disaggpair-engines")
    assert port == WANTED[role][1]
    assert labels["namespace"] == "agents"
    assert labels["disaggpair"] == pod_labels["disaggpair.dev/pair"]


@pytest.mark.parametrize("role", WANTED)
def test_one_pod_monitor_takes_a_pod_and_knows_its_pair(role: str) -> None:
    template = workloads()[role]
    monitors = list(yaml.safe_load_all((MONITORING / "podmonitors.yaml").read_text()))
    (monitor,) = [one for one in monitors if selected(template, one["spec"]["selector"])]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] == WANTED[role][0]
    steps = {step["targetLabel"]: step["sourceLabels"] for step in endpoint["relabelings"]}
    assert steps["disaggpair"] == [meta("disaggpair.dev/pair")]


def selected(template: Object, selector: Object) -> bool:
    labels = template["metadata"]["labels"]
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        labels.get(each["key"]) in each["values"] for each in selector.get("matchExpressions", ())
    )


def test_the_policy_for_scrapers_opens_the_engines_port_alone() -> None:
    policy = yaml.safe_load((MONITORING / "engine-policy.yaml").read_text())
    kubernetes_validate.validate(policy, "1.36", strict=True)
    taken = {
        role
        for role, template in workloads().items()
        if selected(template, policy["spec"]["podSelector"])
    }
    assert taken == {"prefill", "decode"}
    (rule,) = policy["spec"]["ingress"]
    assert [port["port"] for port in rule["ports"]] == [8000]
