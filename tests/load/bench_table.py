"""What 100,000 leases cost a router: memory, the time to learn of them, processor time at rest.

    python tests/load/bench_table.py [--leases 100000] [--engines 4]

The leases are in tables of our connector, each in a process with its own listener. Memory is the
router's, beside that of one whose engines hold no lease.

Bound: loopback, two routers one after the other, half a minute each.
"""

import argparse
import http.client
import re
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from disaggpair_bed.load import routers
from disaggpair_bed.load.numbers import load, say

_HELD = re.compile(rb"^disaggpair_router_handles (\S+)$", re.MULTILINE)
_FILL_S = 60.0
_REST_S = 10.0


def held(port: int) -> int:
    """Leases that the router knows."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/metrics")
        found = _HELD.search(connection.getresponse().read())
        return int(float(found[1])) if found else 0
    finally:
        connection.close()


def measure(folder: Path, engines: int, leases: int) -> float:
    """Print what a router takes; its memory in MB."""
    lease, metrics = routers.free_ports(2)
    with ExitStack() as stack:
        ports = []
        for number in range(engines):
            host = f"127.0.0.{number + 2}"
            flags = ("--granted", str(leases // engines), "--lease-ttl", "3600")
            started = routers.engines(folder, *flags, host=host, lease=lease)
            ports.append((host, *stack.enter_context(started)))
        prefill, _ = stack.enter_context(routers.engines(folder))
        urls = [f"http://{host}:{decode}" for host, _, decode in ports]
        began = time.monotonic()
        name = f"ours-{leases}"
        one = stack.enter_context(
            routers.ours(folder, prefill, urls, lease=lease, name=name, metrics_port=metrics)
        )
        ready = time.monotonic()
        while held(metrics) < leases:
            if time.monotonic() - began > _FILL_S:
                raise RuntimeError(f"{held(metrics)} of {leases} leases after {_FILL_S:g} s")
            time.sleep(0.02)
        filled = time.monotonic()
        filling_s = one.cpu_s()
        time.sleep(2.0)
        before = one.cpu_s()
        time.sleep(_REST_S)
        rest = (one.cpu_s() - before) / _REST_S
        say(
            f"| {leases:,} | {one.resident_mb():.0f} | {ready - began:.1f} | {filled - began:.1f} "
            f"| {filling_s:.1f} | {100 * rest:.1f} % |"
        )
        return one.resident_mb()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--leases", type=int, default=100_000)
    parser.add_argument("--engines", type=int, default=4)
    args = parser.parse_args()
    say("| leases | memory, MB | ready after, s | all known, s | cpu until then, s | at rest |")
    say("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="load-") as folder:
        bare = measure(Path(folder), args.engines, 0)
        full = measure(Path(folder), args.engines, args.leases)
    say(f"\n{full - bare:.0f} MB for the leases; {load()}")


if __name__ == "__main__":
    main()
