"""Faults that a test or a person switches on by an annotation. Pure.

On a Node, `bed.disaggpair.dev/fault` is a comma-separated list of

    node-gone        the machine is off: its containers die, no heartbeats, no log endpoint;
                     without it again the node boots and starts its pods anew
    efa-gone         no EFA devices are allocatable any more
    slow-start=N     every container that starts on this node starts N seconds late

and on a Pod a list of

    slow-start=N     its containers start N seconds late
    hung=NAME        the first process of container NAME is stopped (SIGSTOP), so its probes get
                     no answer; a restart or removing the fault ends it
    kill=NAME        container NAME gets SIGKILL once; `kill=NAME#2` does it a second time

For example `kubectl annotate node p5en-a-1 bed.disaggpair.dev/fault=node-gone`, and the same with
`bed.disaggpair.dev/fault-` to end it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

ANNOTATION = "bed.disaggpair.dev/fault"


@dataclass(frozen=True)
class Faults:
    """The faults of one Node or Pod."""

    node_gone: bool = False
    efa_gone: bool = False
    slow_start_s: float = 0.0
    hung: frozenset[str] = frozenset()
    kill: frozenset[str] = frozenset()
    """`NAME` or `NAME#COUNT`; each one acts once per value."""
    unknown: tuple[str, ...] = ()
    """Words that stand for no fault, to be reported and ignored."""


def parse_faults(annotations: Mapping[str, str]) -> Faults:
    """Read the annotation; a missing one means no faults."""
    words = [word.strip() for word in annotations.get(ANNOTATION, "").split(",") if word.strip()]
    hung, kill, unknown = set(), set(), []
    slow_s = 0.0
    for word in words:
        name, _, value = word.partition("=")
        if name == "hung" and value:
            hung.add(value)
        elif name == "kill" and value:
            kill.add(value)
        elif name == "slow-start" and value.isdigit():
            slow_s = float(value)
        elif word not in ("node-gone", "efa-gone"):
            unknown.append(word)
    return Faults(
        node_gone="node-gone" in words,
        efa_gone="efa-gone" in words,
        slow_start_s=slow_s,
        hung=frozenset(hung),
        kill=frozenset(kill),
        unknown=tuple(unknown),
    )
