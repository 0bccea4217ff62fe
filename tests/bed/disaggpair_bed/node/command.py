"""`disaggpair-bed nodes --config FILE`: run process nodes until SIGTERM or SIGINT."""

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from disaggpair_bed.node.config import BedConfig, load_config
from disaggpair_bed.node.errors import NodeError
from disaggpair_bed.node.images import ImageMap
from disaggpair_bed.node.kubelet import Kubelet
from disaggpair_bed.node.memory import memory_root
from disaggpair_bed.node.process import HollowRuntime, ProcessRuntime, Runtime
from disaggpair_bed.node.waits import cancel, first_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the subcommand."""
    parser.add_argument("--config", type=Path, required=True, help="the nodes, see node/config.py")
    parser.add_argument("--verbose", action="store_true", help="log more")


def run(args: argparse.Namespace) -> int:
    """Run the nodes; 1 when they cannot run, with the reason on stderr."""
    logging.basicConfig(
        level=logging.DEBUG if args.verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        stream=sys.stderr,
    )
    logging.getLogger("asyncio").setLevel(logging.INFO)
    try:
        asyncio.run(run_nodes(load_config(args.config)))
    except NodeError as exc:
        print(f"disaggpair-bed nodes: {exc}", file=sys.stderr)
        return 1
    return 0


async def run_nodes(config: BedConfig) -> None:
    """Run all nodes until a signal asks this process to end, then stop their pods."""
    hollow: Runtime = HollowRuntime()
    real: Runtime = hollow
    if not all(node.hollow for node in config.nodes):
        real = await ProcessRuntime.detect()
    images = ImageMap(config.images)
    images.read()
    with memory_root() as memory:
        await _run_until_signal(
            [
                Kubelet(node, config, hollow if node.hollow else real, images, memory)
                for node in config.nodes
            ]
        )


async def _run_until_signal(kubelets: Sequence[Kubelet]) -> None:
    loop = asyncio.get_running_loop()
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)
    tasks = [asyncio.create_task(kubelet.run()) for kubelet in kubelets]
    try:
        # A node that fails ends the process: a bed with a node missing is worse than none.
        await first_of(ending.wait(), *tasks)
        for kubelet in kubelets:
            kubelet.stop()
        await asyncio.gather(*tasks)
    finally:
        await cancel(*tasks)
