import pytest

from disaggpair_bed.node.addresses import AddressPool, NoAddress


def test_the_nodes_own_address_is_not_given_out() -> None:
    pool = AddressPool("127.11.0", "127.11.0.1")
    assert [pool.take(), pool.take()] == ["127.11.0.2", "127.11.0.3"]


def test_an_address_given_back_is_used_again_last() -> None:
    pool = AddressPool("127.11.0", "127.11.0.1")
    first = pool.take()
    pool.give_back(first)
    taken = [pool.take() for _ in range(253)]
    assert taken[-1] == first
    assert len(set(taken)) == 253


def test_a_full_range_is_refused_until_one_comes_back() -> None:
    pool = AddressPool("127.11.0", "127.11.0.1")
    taken = [pool.take() for _ in range(253)]
    with pytest.raises(NoAddress, match=r"127.11.0.0/24"):
        pool.take()
    pool.give_back(taken[7])
    assert pool.take() == taken[7]


def test_a_former_address_is_kept_when_it_is_free() -> None:
    pool = AddressPool("127.11", "127.11.0.1")
    assert pool.take("127.11.3.4") == "127.11.3.4"
    assert pool.take("127.11.3.4") == "127.11.0.2"
    assert pool.take("10.0.0.1") == "127.11.0.3"
