"""Listening: everybody who waits is let in at once, and a fault of one is none of the others."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator

import pytest

from disaggpair_bed.routing import eventually
from disaggpair_router.listening import Listener


class Greeter(asyncio.Protocol):
    """Says hello and counts."""

    count = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        type(self).count += 1
        transport.write(b"hello")
        transport.close()


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    Greeter.count = 0
    one = Listener(Greeter)
    yield one
    one.stop()
    await asyncio.sleep(0)


async def heard(port: int, host: str = "127.0.0.1") -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    found = await reader.read()
    writer.close()
    return found


async def test_all_that_wait_are_taken_in_one_round(listener: Listener) -> None:
    port = await listener.start("127.0.0.1", 0)
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
    rounds = 0
    while Greeter.count < 100:
        await asyncio.sleep(0)
        rounds += 1
        assert rounds < 10
    for client in clients:
        client.close()


async def test_an_empty_host_is_every_address(listener: Listener) -> None:
    port = await listener.start("", 0)
    assert await heard(port) == b"hello"
    assert await heard(port, "127.0.0.2") == b"hello"
    if socket.has_dualstack_ipv6():
        assert await heard(port, "::1") == b"hello"


async def test_a_taken_port_is_an_error(listener: Listener) -> None:
    port = await listener.start("127.0.0.1", 0)
    with pytest.raises(OSError, match=r".") as error:
        await Listener(Greeter).start("127.0.0.1", port)
    assert error.value.errno == errno.EADDRINUSE


async def test_a_family_that_the_machine_lacks_is_left_out(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2001:db8::1", 0, 0, 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
    ]
    loop = asyncio.get_running_loop()

    async def resolved(*_: object, **__: object) -> list[object]:
        return list(found)

    monkeypatch.setattr(loop, "getaddrinfo", resolved)
    port = await listener.start("name", 0)
    assert await heard(port) == b"hello"
    del found[1]
    with pytest.raises(OSError, match=r".") as error:
        await Listener(Greeter).start("name", 0)
    assert error.value.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


async def test_nobody_is_taken_after_the_stop(listener: Listener) -> None:
    port = await listener.start("127.0.0.1", 0)
    listener.stop()
    with pytest.raises(ConnectionRefusedError):
        await heard(port)


class Scarce:
    """A listening socket that fails a few times."""

    def __init__(self, real: socket.socket, faults: list[OSError]) -> None:
        self._real = real
        self._faults = faults

    def accept(self) -> object:
        if self._faults:
            raise self._faults.pop(0)
        return self._real.accept()

    def fileno(self) -> int:
        return self._real.fileno()

    def getsockname(self) -> object:
        return self._real.getsockname()

    def close(self) -> None:
        self._real.close()


async def test_a_lack_of_descriptors_passes(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("disaggpair_router.listening._PAUSE_S", 0.001)
    faults = [OSError(errno.EMFILE, "Too many open files")]
    monkeypatch.setattr(
        "disaggpair_router.listening._bound",
        lambda family, address, shared: Scarce(_real(address), faults),
    )
    port = await listener.start("127.0.0.1", 0)
    assert await heard(port) == b"hello"
    assert "Too many open files" in caplog.text


async def test_a_client_that_left_before_it_was_taken_is_passed_over(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "disaggpair_router.listening._bound",
        lambda family, address, shared: Scarce(_real(address), [ConnectionAbortedError()]),
    )
    port = await listener.start("127.0.0.1", 0)
    assert await heard(port) == b"hello"
    await eventually(lambda: not listener._taking)


def _real(address: tuple[str, int]) -> socket.socket:
    one = socket.create_server(address)
    one.setblocking(False)
    return one
