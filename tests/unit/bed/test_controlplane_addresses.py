import socket
from collections.abc import Iterator

import pytest

from disaggpair_bed.controlplane.addresses import LOOPBACK, LoopbackPrefix, Ports
from disaggpair_bed.controlplane.errors import StartError

PREFIXES = ("test.a", "test.b")


@pytest.fixture
def ports() -> Iterator[Ports]:
    ports = Ports(["one", "other"])
    yield ports
    ports.release()


def bind(port: int) -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, port))


def test_a_port_is_held_until_it_is_released(ports: Ports) -> None:
    with pytest.raises(OSError, match="in use"):
        bind(ports["one"])
    ports.release("one")
    bind(ports["one"])
    with pytest.raises(OSError, match="in use"):
        bind(ports["other"])


def test_releasing_twice_is_nothing(ports: Ports) -> None:
    ports.release("one")
    ports.release()
    ports.release("one", "other")
    bind(ports["other"])


def test_two_beds_have_two_prefixes_and_a_third_waits_for_one() -> None:
    one, other = LoopbackPrefix(PREFIXES), LoopbackPrefix(PREFIXES)
    assert [one.text, other.text] == list(PREFIXES)
    with pytest.raises(StartError, match="every loopback prefix is taken"):
        LoopbackPrefix(PREFIXES)
    one.release()
    again = LoopbackPrefix(PREFIXES)
    assert again.text == "test.a"
    again.release()
    other.release()
