"""`disaggpair-bed engine serve MODEL [flags of vllm serve]`."""

import argparse
import asyncio
import os
import signal
import sys

from disaggpair_bed.simengine.commandline import parse_command_line
from disaggpair_bed.simengine.options import EngineOptions
from disaggpair_bed.simengine.server import RunningEngine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser.add_argument("action", choices=["serve"], help="as in `vllm serve`")
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, help="MODEL and flags of `vllm serve`"
    )


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT (0), or until the core dies (1)."""
    options = parse_command_line(args.arguments, os.environ)
    return asyncio.run(_serve(options))


async def _serve(options: EngineOptions) -> int:
    server = RunningEngine(options)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if options.costs.startup_s:
        _log(f"engine loads {options.model} for {options.costs.startup_s:g} s")
    starting = asyncio.create_task(server.start())
    asked = asyncio.create_task(stopping.wait())
    died = asyncio.create_task(server.ranks.died.wait())
    await asyncio.wait({starting, asked}, return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        await starting
        _log(f"engine {server.engine.engine_id} serves {options.names[0]} on {server.url}")
        await asyncio.wait({asked, died}, return_when=asyncio.FIRST_COMPLETED)
    else:
        starting.cancel()
    for task in (asked, died):
        task.cancel()
    dead = server.ranks.death
    if dead:
        _log(f"EngineCore encountered a fatal error: {dead}")
    else:
        _log(f"[shutdown] EngineCore: start mode=timeout:{options.shutdown_timeout_s:g}")
    await server.stop(options.shutdown_timeout_s)
    return 1 if dead else 0


def _log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
