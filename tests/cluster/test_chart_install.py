"""The chart on a real cluster: it comes up, within the restricted profile, and goes again."""

import json
from pathlib import Path

import pytest

from disaggpair_bed.cluster import Cluster
from disaggpair_bed.controlplane.errors import ToolError
from disaggpair_operator.api.crd import crd_yaml

CHART = Path(__file__).parents[2] / "charts" / "disaggpair"


@pytest.fixture
def release(cluster: Cluster, namespace: str) -> str:
    """The installed release's name; the namespace allows the restricted profile only."""
    # Other tests of this cluster apply the definition too, so it is not this release's.
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=crd_yaml())
    enforce = "pod-security.kubernetes.io/enforce=restricted"
    cluster.kubectl("label", "namespace", namespace, enforce)
    name = f"op-{namespace}"
    cluster.helm(
        "install",
        name,
        str(CHART),
        f"--namespace={namespace}",
        "--set=crds.install=false,rbac.aggregate=false,rbac.readNodes=false",
        f"--set=image.tag=dev,settings.bindAddress=PodIP,watchNamespaces={{{namespace}}}",
        "--wait",
        "--timeout=120s",
    )
    return name


def test_the_operator_comes_up_restricted_and_leaves_nothing(
    cluster: Cluster, namespace: str, release: str
) -> None:
    deployment = json.loads(
        cluster.kubectl(
            "get", f"deployment/{release}-disaggpair", f"--namespace={namespace}", "-o", "json"
        )
    )
    assert deployment["status"]["readyReplicas"] == 1
    cluster.helm("uninstall", release, f"--namespace={namespace}", "--wait")
    left = cluster.kubectl(
        "get",
        "deployments,roles,rolebindings,serviceaccounts",
        f"--namespace={namespace}",
        f"--selector=app.kubernetes.io/instance={release}",
        "-o",
        "name",
    )
    assert left == ""


def test_the_account_may_do_its_work_and_no_more(
    cluster: Cluster, namespace: str, release: str
) -> None:
    account = f"--as=system:serviceaccount:{namespace}:{release}-disaggpair"

    def may(verb: str, resource: str, where: str, *flags: str) -> bool:
        question = (verb, resource, account, f"--namespace={where}", *flags)
        try:
            cluster.kubectl("auth", "can-i", *question)
        except ToolError:
            return False
        return True

    assert may("patch", "deployments.apps", namespace)
    assert may("patch", "disaggpairs.disaggpair.dev", namespace, "--subresource=status")
    assert not may("patch", "disaggpairs.disaggpair.dev", namespace)
    # The keys of a pair are made and filled by name; nobody is to look through the others.
    assert may("get", "secrets", namespace)
    assert not any(may(verb, "secrets", namespace) for verb in ("list", "watch", "delete"))
    assert not may("get", "secrets", "default")
    assert not may("patch", "deployments.apps", "default")
    assert not may("list", "nodes", "default")
