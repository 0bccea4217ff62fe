"""One namespace with an operator beside the cluster, and short ways to ask about it."""

import json
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from disaggpair_bed.builders import FACTS, owner, pair, raw_pair
from disaggpair_bed.cluster import Cluster
from disaggpair_bed.operators import OperatorProcess
from disaggpair_operator import kinds
from disaggpair_operator.plan import desired

BOUND_S: Final = 60.0
NOWHERE: Final = {"placement": {"zone": "nowhere-1a"}}
"""A zone without a node: engines wait, and all else is real."""
EXPECTED: Final = len(desired(pair(NOWHERE), owner(), FACTS).objects)
"""Children of a pair, without its Secret."""
_CHILDREN: Final = ",".join(f"{kind.plural}.{kind.version}.{kind.group}" for kind in kinds.CHILDREN)

T = TypeVar("T")


def eventually(question: Callable[[], T], what: str) -> T:
    """The first true answer; fails when there is none within the bound."""
    deadline = time.monotonic() + BOUND_S
    while not (answer := question()):
        assert time.monotonic() < deadline, f"not within {BOUND_S:.0f} s: {what}"
        time.sleep(0.1)
    return answer


class Bench:
    """One namespace with an operator, and short ways to ask about it."""

    def __init__(self, cluster: Cluster, namespace: str, start: Callable[..., OperatorProcess]):
        self.cluster = cluster
        self.namespace = namespace
        self.start = start

    def kubectl(self, *args: str, stdin: str | None = None) -> str:
        """Run kubectl in the namespace."""
        return self.cluster.kubectl(*args, f"--namespace={self.namespace}", stdin=stdin)

    def put(self, obj: dict[str, Any], *flags: str) -> None:
        """Apply an object as a user."""
        self.kubectl("apply", "--server-side", *flags, "-f", "-", stdin=json.dumps(obj))

    def put_pair(self, changes: dict[str, Any] | None = None) -> None:
        """Apply the pair `chat`, which finds no node."""
        self.put(raw_pair({**NOWHERE, **(changes or {})}, namespace=self.namespace))

    def get(self, *what: str) -> Any:
        """What `kubectl get` finds; an empty mapping for nothing."""
        return json.loads(self.kubectl("get", *what, "--output=json", "--ignore-not-found") or "{}")

    def pair(self) -> dict[str, Any]:
        """The pair as it is."""
        found: dict[str, Any] = self.get("disaggpair", "chat")
        return found

    def children(self) -> list[dict[str, Any]]:
        """What carries the pair's label, of the kinds that the operator lists."""
        found = self.get(_CHILDREN, "--selector=disaggpair.dev/pair=chat")
        return list(found.get("items", []))

    def condition(self, type_: str) -> dict[str, Any]:
        """One condition of the pair, or an empty mapping."""
        conditions = self.pair().get("status", {}).get("conditions", [])
        return next((c for c in conditions if c["type"] == type_), {})

    def await_children(self) -> list[dict[str, Any]]:
        """The children, once all are there."""
        return eventually(
            lambda: found if len(found := self.children()) == EXPECTED else [],
            f"{EXPECTED} children",
        )

    def versions(self) -> dict[str, str]:
        """Resource versions of the pair and its children."""
        objects = [self.pair(), *self.children()]
        return {
            f"{obj['kind']}/{obj['metadata']['name']}": obj["metadata"]["resourceVersion"]
            for obj in objects
        }
