"""Keys of pairs, and the memory of which pairs exist.

Pods belong to a ReplicaSet and not to the pair, so they are traced by the pair label, whose value
may be a shortened name: `KnownPairs` remembers which pair it stands for. A pod that arrives before
its pair is not lost, since the pair's own event follows.
"""

from typing import NamedTuple

from disaggpair_operator import names
from disaggpair_operator.model import Object, Ref


class Key(NamedTuple):
    """Which pair to reconcile."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def ref(self) -> Ref:
        """Where the pair is read."""
        return Ref(names.API_VERSION, names.KIND, self.namespace, self.name)


def pair_key(pair: Object) -> Key:
    """Key of a DisaggPair."""
    return Key(pair["metadata"]["namespace"], pair["metadata"]["name"])


class KnownPairs:
    """The pairs that exist, as far as events told."""

    def __init__(self) -> None:
        self._by_label: dict[tuple[str, str], Key] = {}

    def all(self) -> tuple[Key, ...]:
        """All of them, at this moment."""
        return tuple(self._by_label.values())

    def add(self, key: Key) -> None:
        """A pair exists."""
        self._by_label[key.namespace, names.label_value(key.name)] = key

    def discard(self, key: Key) -> None:
        """A pair is gone; nothing happens when it was not known."""
        self._by_label.pop((key.namespace, names.label_value(key.name)), None)

    def find_pod_pair(self, pod: Object) -> Key | None:
        """Key of the pair whose label the pod carries, or None when no such pair is known."""
        label = pod["metadata"].get("labels", {}).get(names.PAIR_LABEL, "")
        return self._by_label.get((pod["metadata"]["namespace"], label))
