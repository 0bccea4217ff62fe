"""One cluster for all tests of this folder, and a namespace for each test."""

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from disaggpair_bed.cluster import DEFAULT_NODES, Cluster
from disaggpair_bed.controlplane.images import Images, bed_images
from disaggpair_bed.node.api import Api
from disaggpair_bed.node_bench import Watcher

TEST_TIMEOUT_S = 300


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
