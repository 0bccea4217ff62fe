"""Refusals are late beyond a rate, and what is granted is not."""

from disaggpair_bed.fakes.rawhttp import RawClient, grant, request
from disaggpair_connector.book import LeaseBook
from disaggpair_connector.listener import LeaseListener
from disaggpair_connector.refusals import DELAY_S, FREE_PER_S, Refusals


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_refusals_are_free_up_to_a_rate_and_late_beyond_it() -> None:
    clock = Clock()
    refusals = Refusals(clock)
    assert [refusals.delay_s() for _ in range(int(FREE_PER_S) + 2)] == [
        *[0.0] * int(FREE_PER_S),
        DELAY_S,
        DELAY_S,
    ]
    clock.now = 0.1
    assert [refusals.delay_s() for _ in range(int(FREE_PER_S / 10) + 1)][-2:] == [0.0, DELAY_S]
    clock.now = 1_000.0
    assert sum(refusals.delay_s() for _ in range(int(FREE_PER_S))) == 0.0


class Counted(Refusals):
    """Refusals that are all late, by next to nothing."""

    asked = 0

    def delay_s(self) -> float:
        self.asked += 1
        return 0.001


def test_a_listener_is_slow_to_refuse_and_to_do_nothing_else() -> None:
    book = LeaseBook(epoch="e", ttl_s=100, claim_s=10, read_s=20)
    refusals = Counted(Clock())
    listener = LeaseListener(
        book,
        host="127.0.0.1",
        port=0,
        key="key",
        block_size=16,
        read_s=20,
        refusals=refusals,
    )
    grant(book, "a")
    with RawClient("127.0.0.1", listener.start()) as client:
        for key, status, asked in (("key", 200, 0), ("wrong", 403, 1), ("key", 200, 1)):
            client.send(request("GET", "/leases", key=key))
            assert client.answer()[0] == status
            assert refusals.asked == asked
    listener.stop()
