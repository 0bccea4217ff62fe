"""`disaggpair-bed demo`: set up, install, apply, converse, report."""

import argparse
from pathlib import Path

import yaml

from disaggpair_bed.cluster import DEFAULT_NODES, Cluster
from disaggpair_bed.controlplane.errors import BedError
from disaggpair_bed.controlplane.images import OPERATOR, Images
from disaggpair_bed.demo import report
from disaggpair_bed.demo.conversation import Conversation, converse
from disaggpair_bed.demo.counters import prompt_tokens
from disaggpair_bed.demo.pair import get, pod_addresses, wait_ready
from disaggpair_bed.demo.steps import Steps
from disaggpair_bed.images import EngineKind, images_for
from disaggpair_bed.tools import find_tools

ROOT = Path(__file__).parents[4]
EXAMPLES = {"cpu": "examples/local.yaml", "sim": "examples/local-sim.yaml"}
NAMESPACE = "disaggpair-system"
ENGINE_PORT = 8000
ROUTER_PORT = 8000
# Two engines that import torch and share two cores take one to two minutes; a starved machine
# takes several.
READY_S = {"cpu": 600.0, "sim": 120.0}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the demo."""
    parser.add_argument(
        "--engine",
        choices=sorted(EXAMPLES),
        default="cpu",
        help="cpu: real vLLM engines (default); sim: simulated ones",
    )
    parser.add_argument(
        "--turns", type=int, default=5, help="turns of the conversation (default 5)"
    )
    parser.add_argument(
        "--run-dir", type=Path, default=ROOT / ".run", help="folder for what it makes"
    )


def run(args: argparse.Namespace) -> int:
    """Run the demo; 0 only when KV moved from decode to prefill in every turn after the first."""
    steps = Steps()
    with steps.step("install"):
        images = install(args.engine, steps)
    with Cluster(args.run_dir / "demo", DEFAULT_NODES, images, say=steps.say) as cluster:
        return show(cluster, args.engine, args.turns, args.run_dir / "demo.json", steps)


def install(engine: EngineKind, steps: Steps) -> Images:
    """Whatever is missing of control plane and engines; returns the images of the bed."""
    find_tools(steps.say)
    return images_for(engine, steps.say)


def show(cluster: Cluster, engine: str, turns: int, record: Path, steps: Steps) -> int:
    """Install the chart, apply the example, hold the conversation and tell what happened."""
    example = ROOT / EXAMPLES[engine]
    manifest = yaml.safe_load(example.read_text())
    pair, model = manifest["metadata"]["name"], manifest["spec"]["model"]["servedName"]
    with steps.step("helm install charts/disaggpair"):
        install_chart(cluster)
    with steps.step(f"kubectl apply -f {EXAMPLES[engine]}, until Ready"):
        cluster.kubectl("apply", "-f", str(example))
        wait_ready(cluster, pair, READY_S[engine], steps.say)
    with steps.step(f"{turns} turns, and the last one again without reuse"):
        seen = talk(cluster, pair, model, turns)
    found = report.faults(seen, turns)
    tell(cluster, pair, engine, seen, found, steps)
    conditions = get(cluster, "disaggpair", pair)["status"]["conditions"]
    report.write(
        record,
        engine=engine,
        seen=seen,
        steps=steps.seconds,
        conditions=conditions,
        found=found,
    )
    steps.say(f"record: {record.relative_to(ROOT) if record.is_relative_to(ROOT) else record}")
    return 1 if found else 0


def install_chart(cluster: Cluster) -> None:
    """The operator as a pod with its own account, on the pod's address alone."""
    repository, _, tag = OPERATOR.rpartition(":")
    settings = {
        "image.repository": repository,
        "image.tag": tag,
        # On process nodes every pod has a loopback address of its own on one host.
        "settings.bindAddress": "PodIP",
    }
    flags = [flag for key, value in settings.items() for flag in ("--set", f"{key}={value}")]
    chart = str(ROOT / "charts" / "disaggpair")
    cluster.helm(
        "install", "disaggpair", chart, "--namespace", NAMESPACE, "--create-namespace", *flags
    )


def talk(cluster: Cluster, pair: str, model: str, turns: int) -> Conversation:
    """The conversation through the pair's router, beside the counters of its prefill engine.

    The router is reached at its pod's address: a Service on this bed has no endpoints, because
    Kubernetes refuses loopback addresses there.
    """
    routers, prefills = (pod_addresses(cluster, pair, role) for role in ("router", "prefill"))
    if not routers or not prefills:
        raise BedError(f"DisaggPair {pair} has no ready router or prefill pod")
    engine_url = f"http://{prefills[0]}:{ENGINE_PORT}"
    base_url = f"http://{routers[0]}:{ROUTER_PORT}/v1"
    return converse(base_url, model, turns, lambda: prompt_tokens(engine_url))


def tell(
    cluster: Cluster, pair: str, engine: str, seen: Conversation, found: list[str], steps: Steps
) -> None:
    """Print the table, the object's status and the verdict."""
    kind = "real vLLM engines on the CPU" if engine == "cpu" else "simulated engines"
    steps.say("")
    steps.say(
        f"{len(seen.turns)} turns of one conversation, {kind}. P runs with its prefix cache off, as"
    )
    steps.say("a P that has evicted everything: the best case for reading back from D.")
    steps.say("")
    steps.say(report.table(seen.turns))
    steps.say("")
    steps.say(cluster.kubectl("get", "disaggpair", pair, "-o", "wide").rstrip())
    steps.say("")
    conditions = get(cluster, "disaggpair", pair)["status"]["conditions"]
    for entry in conditions:
        steps.say(f"{entry['type']:16} {entry['status']:6} {entry['reason']:14} {entry['message']}")
    steps.say("")
    for fault in found:
        steps.say(f"FAULT: {fault}")
    if not found:
        steps.say(
            "KV moved from decode to prefill in every turn after the first, and the last answer"
        )
        steps.say("is the one that the engines give without any of it.")
