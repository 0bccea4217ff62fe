"""The operator's process against a real API server, with the chart's rights and no node's help.

The pair's zone has no node, so its engines wait; all else is real: apply, ownership, garbage
collection, the CRD's rules, the watches.
"""

import time
from pathlib import Path
from typing import Any

import yaml

from disaggpair_bed.builders import raw_pair
from disaggpair_bed.cluster import Cluster
from disaggpair_bed.controlplane.errors import ToolError
from disaggpair_bed.operator_bench import EXPECTED, Bench, eventually
from disaggpair_bed.operators import OperatorProcess, ServiceAccount

ROOT = Path(__file__).parents[2]
CRD = ROOT / "crds" / "disaggpair.dev_disaggpairs.yaml"


def test_a_pair_gets_children_that_it_owns_and_only_its_status_is_touched(bench: Bench) -> None:
    bench.put_pair()
    bench.start()
    children = bench.await_children()
    uid = bench.pair()["metadata"]["uid"]
    for child in children:
        (reference,) = child["metadata"]["ownerReferences"]
        assert (reference["uid"], reference["controller"]) == (uid, True)
    pair = eventually(
        lambda: found if (found := bench.pair()).get("status", {}).get("conditions") else {},
        "a status",
    )
    assert pair["metadata"]["generation"] == pair["status"]["observedGeneration"] == 1
    assert "finalizers" not in pair["metadata"]
    assert "annotations" not in pair["metadata"]
    managed = bench.get("disaggpair", "chat", "--show-managed-fields")["metadata"]["managedFields"]
    ours = [entry for entry in managed if entry["manager"] == "disaggpair-operator"]
    assert [(entry["operation"], entry["subresource"]) for entry in ours] == [("Apply", "status")]


def test_an_edit_of_the_pair_reaches_its_children(bench: Bench) -> None:
    bench.put_pair()
    bench.start()
    bench.await_children()
    bench.put_pair({"prefill": {"replicas": 2}})
    eventually(
        lambda: bench.get("deployment", "chat-prefill")["spec"]["replicas"] == 2, "2 replicas"
    )
    eventually(lambda: bench.pair()["status"]["observedGeneration"] == 2, "generation 2 observed")


def test_a_deleted_child_comes_back_and_an_edited_one_is_put_back(bench: Bench) -> None:
    bench.put_pair()
    bench.start()
    bench.await_children()
    was = bench.get("service", "chat-prefill")["metadata"]["uid"]
    bench.kubectl("delete", "service", "chat-prefill")
    eventually(
        lambda: bench.get("service", "chat-prefill").get("metadata", {}).get("uid", was) != was,
        "a new Service",
    )
    bench.kubectl("scale", "deployment/chat-decode", "--replicas=7")
    eventually(
        lambda: bench.get("deployment", "chat-decode")["spec"]["replicas"] == 1, "1 replica again"
    )
    bench.kubectl("label", "service", "chat-decode", "disaggpair.dev/pair-")
    eventually(
        lambda: "disaggpair.dev/pair" in bench.get("service", "chat-decode")["metadata"]["labels"],
        "the label again",
    )


def test_deleting_the_pair_leaves_nothing_and_nothing_is_made_for_a_pair_on_its_way_out(
    bench: Bench,
) -> None:
    bench.put_pair()
    operator = bench.start("--resync-seconds=1")
    bench.await_children()
    # A finalizer of somebody else holds the pair between the two moments.
    bench.kubectl(
        "patch",
        "disaggpair/chat",
        "--type=merge",
        '--patch={"metadata":{"finalizers":["example.com/hold"]}}',
    )
    bench.kubectl("delete", "disaggpair", "chat", "--wait=false")
    bench.kubectl("delete", "service", "chat-prefill")
    before = operator.reconciles()
    eventually(lambda: operator.reconciles() >= before + 3, "3 more reconciles")
    assert bench.get("service", "chat-prefill") == {}
    bench.kubectl(
        "patch", "disaggpair/chat", "--type=merge", '--patch={"metadata":{"finalizers":null}}'
    )
    eventually(lambda: not bench.children(), "no children")
    assert bench.pair() == {}
    operator.check()


def test_a_pair_made_anew_under_its_old_name_is_served(bench: Bench) -> None:
    bench.put_pair()
    bench.start()
    bench.await_children()
    bench.kubectl("delete", "disaggpair", "chat", "--wait=false")
    bench.put_pair()
    uid = bench.pair()["metadata"]["uid"]

    def renewed() -> bool:
        owners = [child["metadata"]["ownerReferences"][0]["uid"] for child in bench.children()]
        return owners == [uid] * EXPECTED

    eventually(renewed, "children of the new pair alone")
    eventually(lambda: bench.condition("Accepted").get("status") == "True", "Accepted")


def test_somebody_elses_object_is_left_alone_and_named_in_the_status(bench: Bench) -> None:
    bench.put(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "chat-router", "namespace": bench.namespace},
            "data": {"theirs": "yes"},
        }
    )
    bench.put_pair()
    bench.start()
    eventually(lambda: len(bench.children()) == EXPECTED - 1, "the other children")
    name = f"ConfigMap {bench.namespace}/chat-router"
    eventually(lambda: name in str(bench.pair().get("status")), "the object's name in the status")
    assert bench.get("configmap", "chat-router")["data"] == {"theirs": "yes"}


def test_a_pair_that_is_wrong_past_the_crd_says_so(bench: Bench) -> None:
    # Stored while the CRD asks for less, as under an older release.
    loose = yaml.safe_load(CRD.read_text())
    version = loose["spec"]["versions"][0]
    version["schema"]["openAPIV3Schema"] = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
    }
    wrong = raw_pair(
        {"fabric": {"type": "CarrierPigeons", "devices": 16}}, namespace=bench.namespace
    )
    crd = f"--filename={CRD}"
    bench.cluster.kubectl(
        "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=yaml.safe_dump(loose)
    )
    try:
        eventually(lambda: _accepted(bench, wrong), "the loose CRD in force")
    finally:
        bench.cluster.kubectl("apply", "--server-side", "--force-conflicts", crd)
    eventually(lambda: not _accepted(bench, wrong, "--dry-run=server"), "the CRD in force again")
    bench.start()
    accepted = eventually(lambda: bench.condition("Accepted"), "an Accepted condition")
    assert (accepted["status"], accepted["observedGeneration"]) == ("False", 1)
    assert "spec.fabric.type" in accepted["message"]
    assert "CarrierPigeons" in accepted["message"]
    assert bench.children() == []


def _accepted(bench: Bench, obj: dict[str, Any], *flags: str) -> bool:
    named = {**obj, "metadata": {**obj["metadata"], "name": "probe" if flags else "chat"}}
    try:
        bench.put(named, *flags)
    except ToolError:
        return False
    return True


def test_a_restart_loses_nothing_that_happened_meanwhile(bench: Bench) -> None:
    bench.put_pair()
    first = bench.start()
    bench.await_children()
    first.stop()
    assert first.lines()[-1]["text"] == "told to stop"
    bench.kubectl("delete", "service", "chat-prefill")
    bench.put_pair({"decode": {"replicas": 2}})
    second = bench.start()
    bench.await_children()
    eventually(
        lambda: bench.get("deployment", "chat-decode")["spec"]["replicas"] == 2, "the edit's effect"
    )
    second.check()


def test_nothing_is_written_while_nothing_changes(bench: Bench) -> None:
    bench.put_pair({"suspend": True})
    operator = bench.start("--resync-seconds=1")
    bench.await_children()

    def settled() -> dict[str, str]:
        before, count = bench.versions(), operator.reconciles()
        eventually(lambda: operator.reconciles() > count, "one more reconcile")
        return before if bench.versions() == before else {}

    before = eventually(settled, "a reconcile that changes nothing")
    count = operator.reconciles()
    eventually(lambda: operator.reconciles() >= count + 4, "4 more reconciles")
    assert bench.versions() == before


def test_our_own_writes_ask_for_no_reconcile_after_the_last(bench: Bench) -> None:
    bench.put_pair({"suspend": True})
    operator = bench.start()
    bench.await_children()

    def silent() -> bool:
        count = operator.reconciles()
        time.sleep(2.0)
        return count > 0 and operator.reconciles() == count

    eventually(silent, "two seconds without a reconcile")
    assert operator.reconciles() < 30


def test_without_the_crd_the_operator_says_what_to_install_and_ends(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    missing = yaml.safe_load(cluster.kubeconfig.read_text())
    missing["clusters"][0]["cluster"]["server"] += "/api/v1/nowhere"
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(yaml.safe_dump(missing))
    operator = OperatorProcess(kubeconfig, namespace, tmp_path / "operator.log", 0)
    operator.start()
    eventually(lambda: not operator.running, "its end")
    assert "install the CustomResourceDefinition" in str(operator.lines()[-1])


def test_without_rights_the_operator_says_what_it_may_not_do_and_ends(
    cluster: Cluster, definition: None, namespace: str, tmp_path: Path
) -> None:
    account = ServiceAccount(cluster, namespace)
    kubeconfig = account.write_kubeconfig(tmp_path / "operator.kubeconfig")
    operator = OperatorProcess(kubeconfig, "default", tmp_path / "operator.log", 0)
    operator.start()
    eventually(lambda: not operator.running, "its end")
    account.remove()
    said = operator.lines()[-1]["text"]
    assert said.startswith("could not list DisaggPair in default: ")
    assert 'cannot list resource "disaggpairs"' in said
