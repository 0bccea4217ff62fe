"""One cluster for all tests of this folder, and a namespace for each test."""

import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from disaggpair_bed.cluster import DEFAULT_NODES, Cluster
from disaggpair_bed.controlplane.errors import ToolError
from disaggpair_bed.controlplane.images import Images, bed_images
from disaggpair_bed.node.api import Api
from disaggpair_bed.node_bench import Watcher
from disaggpair_bed.operator_bench import Bench, eventually
from disaggpair_bed.operators import OperatorProcess, ServiceAccount

TEST_TIMEOUT_S = 300
CRD = Path(__file__).parents[2] / "crds" / "disaggpair.dev_disaggpairs.yaml"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark this folder's tests; compiling the control plane is not on the first one's clock."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.cluster)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S, func_only=True))


@pytest.fixture(scope="session")
def say(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Shows a line at once, past pytest's capture: a first build takes minutes."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def show(line: str) -> None:
        with capture.global_and_fixture_disabled():
            sys.stderr.write(f"\n{line}")
            sys.stderr.flush()

    return show


@pytest.fixture(scope="session")
def images() -> Images:
    """The operator and the simulated engines, from the environment that runs the tests."""
    return bed_images()


@pytest.fixture(scope="session")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, images: Images, say: Callable[[str], None]
) -> Iterator[Cluster]:
    """A control plane with three process nodes, in two zones."""
    run_dir = tmp_path_factory.mktemp("cluster")
    with Cluster(run_dir, DEFAULT_NODES, images, say=say) as running:
        yield running


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A fresh namespace that takes pods; after the test its pods are gone, and the rest soon.

    A namespace takes five seconds at least to go. Nothing new can be made in it meanwhile, so
    its pods are not replaced.
    """
    cluster.check()
    name = f"test-{uuid4().hex[:8]}"
    cluster.kubectl("create", "namespace", name)
    cluster.kubectl(
        "wait", "--for=create", "serviceaccount/default", f"--namespace={name}", "--timeout=30s"
    )
    yield name
    cluster.check()  # without nodes the pods would never end
    cluster.kubectl("delete", "namespace", name, "--wait=false")
    cluster.kubectl(
        "delete", "pods", "--all", f"--namespace={name}", "--timeout=90s", timeout_s=100
    )


@pytest.fixture
async def objects(cluster: Cluster, namespace: str) -> AsyncIterator[Watcher]:
    """Reads, writes and waits in the test's namespace, by watching."""
    api = Api.from_kubeconfig(cluster.kubeconfig)
    yield Watcher(api, namespace)
    await api.aclose()


@pytest.fixture(scope="module")
def definition(cluster: Cluster) -> Iterator[None]:
    """The CRD, for as long as this module runs unless it was there before."""
    name = "disaggpairs.disaggpair.dev"
    present = cluster.kubectl("get", "crd", name, "--ignore-not-found")
    if not present:
        cluster.kubectl("apply", "--server-side", "-f", str(CRD))
        eventually(lambda: _serves(cluster, name), "the CRD in force")
    yield
    if not present:
        cluster.kubectl("delete", "crd", name, "--timeout=60s", timeout_s=90)


def _serves(cluster: Cluster, resource: str) -> bool:
    try:
        cluster.kubectl("get", resource, "--all-namespaces")
    except ToolError:
        return False
    return True


@pytest.fixture
def bench(cluster: Cluster, definition: None, namespace: str, tmp_path: Path) -> Iterator[Bench]:
    """A namespace whose operator has the chart's rights; a test starts it."""
    account = ServiceAccount(cluster, namespace)
    kubeconfig = account.write_kubeconfig(tmp_path / "operator.kubeconfig")
    started: list[OperatorProcess] = []

    def start(*flags: str) -> OperatorProcess:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        log = tmp_path / f"operator-{len(started)}.log"
        process = OperatorProcess(kubeconfig, namespace, log, port, *flags)
        process.start()
        started.append(process)
        return process

    yield Bench(cluster, namespace, start)
    for process in started:
        process.stop()
    account.remove()
