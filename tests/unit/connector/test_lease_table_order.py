"""What the order of leases costs: nothing is looked at that need not be."""

import random
from dataclasses import dataclass, field

import pytest

from disaggpair_connector.digest import Digests
from disaggpair_connector.heap import LeaseHeap
from disaggpair_connector.lease import Lease


def lease(name: str, serial: int, due: float) -> Lease:
    return Lease(
        id=name,
        conversation=None,
        tokens=0,
        block_ids=(),
        digests=Digests(0, b"", b""),
        handle={},
        divisible=True,
        pinned=None,
        serial=serial,
        created=0.0,
        expires=due,
        token="t",
    )


@dataclass
class Looks:
    """A heap by expiry that counts how often it looks at a lease."""

    leases: dict[str, Lease] = field(default_factory=dict)
    count: int = 0

    def number_of(self, found: Lease) -> float | None:
        self.count += 1
        return found.expires if found.state != "reading" else None


@pytest.fixture
def looks() -> Looks:
    return Looks()


@pytest.fixture
def heap(looks: Looks) -> LeaseHeap:
    return LeaseHeap(looks.leases, looks.number_of)


def put(looks: Looks, heap: LeaseHeap, found: Lease) -> None:
    looks.leases[found.id] = found
    heap.push(found)


def test_the_first_of_many_is_one_look(looks: Looks, heap: LeaseHeap) -> None:
    for number in range(1000):
        put(looks, heap, lease(f"l{number}", number, due=1000.0 - number))
    looks.count = 0
    assert (first := heap.first()) is not None
    assert first.id == "l999"
    assert looks.count == 1


def test_none_is_first_of_none(heap: LeaseHeap) -> None:
    assert heap.first() is None


def test_a_lease_without_a_number_is_not_in_the_order(looks: Looks, heap: LeaseHeap) -> None:
    found = lease("a", 1, 5.0)
    found.state = "reading"
    put(looks, heap, found)
    assert heap.first() is None


def test_a_changed_number_holds_from_the_push_on(looks: Looks, heap: LeaseHeap) -> None:
    early, late = lease("a", 1, 1.0), lease("b", 2, 2.0)
    put(looks, heap, early)
    put(looks, heap, late)
    early.expires = 3.0
    heap.push(early)
    assert heap.first() is late
    del looks.leases["b"]
    assert heap.first() is early


def test_what_is_out_of_date_does_not_pile_up(looks: Looks, heap: LeaseHeap) -> None:
    put(looks, heap, lease("first", 0, 0.0))
    for number in range(1, 10_000):
        put(looks, heap, lease(f"l{number}", number, due=float(number)))
        if number > 10:
            del looks.leases[f"l{number - 10}"]
    assert len(heap) < 200
    assert looks.count < 40_000


def test_the_order_is_that_of_a_sorted_list_through_any_changes(
    looks: Looks, heap: LeaseHeap
) -> None:
    draw = random.Random(4)
    for number in range(3000):
        put(looks, heap, lease(f"l{number}", number, draw.uniform(0, 100)))
        for _ in range(draw.choice([0, 1, 1, 3])):
            if not looks.leases:
                break
            found = draw.choice(list(looks.leases.values()))
            if draw.random() < 0.5:
                del looks.leases[found.id]
            else:
                found.expires = draw.uniform(0, 100)
                found.state = draw.choice(["granted", "reading"])
                heap.push(found)
        shown = [found for found in looks.leases.values() if found.state != "reading"]
        assert heap.first() is min(shown, key=lambda found: found.expires, default=None)
