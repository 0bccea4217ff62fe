"""`disaggpair-bed up`: a cluster that outlives the command.

The command starts a supervisor in a session of its own and relays what it says until the
cluster is ready. The supervisor is this module again, in the foreground.
"""

import argparse
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

from disaggpair_bed.cluster import DEFAULT_NODES, Cluster
from disaggpair_bed.images import EngineKind, images_for

DEFAULT_RUN_DIR = Path(".run/cluster")

_READY = "bed: ready"
"""Last line that a detached supervisor says."""

_NODE_COLUMNS = ",".join(
    (
        "NAME:.metadata.name",
        r"ZONE:.metadata.labels.topology\.kubernetes\.io/zone",
        r"TYPE:.metadata.labels.node\.kubernetes\.io/instance-type",
        r"GPUS:.status.allocatable.nvidia\.com/gpu",
        r"EFA:.status.allocatable.vpc\.amazonaws\.com/efa",
        'READY:.status.conditions[?(@.type=="Ready")].status',
    )
)


_NEXT = """
The operator, which listens on its pod's address alone, since all pods share this machine:
  helm install disaggpair charts/disaggpair --namespace disaggpair-system --create-namespace \\
    --set settings.bindAddress=PodIP
A pair:
  kubectl apply -f examples/{example}
  kubectl wait disaggpair/local --for=condition=Ready --timeout=10m
Its router, at its pod's address, since Services have no endpoints here:
  curl http://$(kubectl get pods -l disaggpair.dev/pair=local,disaggpair.dev/role=router \\
    -o jsonpath='{{.items[0].status.podIP}}'):8000/v1/models
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `up`."""
    parser.add_argument(
        "--run-dir",
        type=Path,
        default=DEFAULT_RUN_DIR,
        help="folder of keys, logs and state; emptied first (default: %(default)s)",
    )
    parser.add_argument(
        "--engine",
        choices=("sim", "cpu"),
        default="sim",
        help="engines that pods can have: simulated ones, or these and real vLLM on the CPU, "
        "which is installed first (default: %(default)s)",
    )
    parser.add_argument("--no-nodes", action="store_true", help="start the control plane only")
    parser.add_argument(
        "--foreground", action="store_true", help="stay, and stop the cluster at Ctrl-C"
    )
    parser.add_argument("--detached", action="store_true", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Start a cluster, here or in a process of its own."""
    if args.foreground or args.detached:
        return _supervise(args)
    return _detach(args)


def _supervise(args: argparse.Namespace) -> int:
    """Hold the cluster until a signal or the end of one of its programs."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    nodes = () if args.no_nodes else DEFAULT_NODES
    try:
        with Cluster(args.run_dir, nodes, images_for(args.engine, _say), say=_say) as cluster:
            _describe(cluster, args.engine)
            if args.detached:
                _say(_READY)
                _redirect_output(cluster.run_dir / "logs" / "supervisor.log")
            cluster.wait()
    except KeyboardInterrupt:
        _say("bed: stopped")
    return 0


def _detach(args: argparse.Namespace) -> int:
    command = [sys.executable, "-m", "disaggpair_bed.cli", "up", "--detached"]
    command += ["--run-dir", str(args.run_dir), "--engine", args.engine]
    command += ["--no-nodes"] if args.no_nodes else []
    supervisor = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert supervisor.stdout is not None
    try:
        for line in supervisor.stdout:
            if line.rstrip() == _READY:
                return 0
            _say(line.rstrip())
    except BaseException:
        supervisor.terminate()
        raise
    finally:
        supervisor.stdout.close()
    return supervisor.wait()


def _describe(cluster: Cluster, engine: EngineKind) -> None:
    nodes = cluster.kubectl("get", "nodes", "-o", f"custom-columns={_NODE_COLUMNS}")
    programs = [cluster.run_dir / "bin", Path(sys.executable).parent]
    path = ":".join(shlex.quote(str(folder)) for folder in programs)
    example = "local.yaml" if engine == "cpu" else "local-sim.yaml"
    _say("")
    _say(nodes.rstrip() or "no nodes")
    _say("")
    _say(f"export KUBECONFIG={shlex.quote(str(cluster.kubeconfig))}")
    _say(f'export PATH={path}:"$PATH"    # kubectl, helm, disaggpair')
    _say(_NEXT.format(example=example))


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _redirect_output(log: Path) -> None:
    """Let go of the pipe of the command that started this supervisor."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for standard in (sys.stdout.fileno(), sys.stderr.fileno()):
        os.dup2(descriptor, standard)
    os.close(descriptor)


def _say(line: str) -> None:
    print(line, flush=True)
