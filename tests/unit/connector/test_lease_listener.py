"""What a router and a P can do at a D's listener, over real sockets."""

import json
import logging
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from disaggpair_bed.fakes.rawhttp import BLOCK_SIZE, RawClient, grant, request
from disaggpair_connector import wire
from disaggpair_connector.book import LeaseBook
from disaggpair_connector.errors import ConfigError
from disaggpair_connector.lease import EndReason
from disaggpair_connector.listener import LeaseListener, listening_socket

KEY = "the-key"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def book(clock: Clock) -> LeaseBook:
    return LeaseBook(
        epoch="e1", ttl_s=100, claim_s=10, read_s=20, clock=clock, wall_clock=lambda: 5000.0
    )


def listener_of(book: LeaseBook, key: str | None = KEY, host: str = "127.0.0.1") -> LeaseListener:
    return LeaseListener(book, host=host, port=0, key=key, block_size=BLOCK_SIZE, read_s=20)


@pytest.fixture
def port(book: LeaseBook) -> Iterator[int]:
    listener = listener_of(book)
    yield listener.start()
    listener.stop()


@pytest.fixture
def client(port: int) -> Iterator[RawClient]:
    with RawClient("127.0.0.1", port) as client:
        yield client


class Asker:
    """A client that speaks of values."""

    def __init__(self, client: RawClient) -> None:
        self._client = client

    def ask(
        self, method: str, path: str, value: Any = None, key: str | None = None
    ) -> tuple[int, Any]:
        body = b"" if value is None else json.dumps(value).encode()
        self._client.send(request(method, path, body, key))
        status, answer = self._client.answer()
        return status, json.loads(answer) if answer else None

    def code(self, method: str, path: str, value: Any = None, key: str | None = None) -> str:
        """Status and code of an error."""
        status, answer = self.ask(method, path, value, key)
        assert answer["error"]["message"].endswith(".")
        return f"{status} {answer['error']['code']}"


@pytest.fixture
def asker(client: RawClient) -> Asker:
    return Asker(client)


def test_a_listing_shows_what_is_held_and_where_to_watch_from(
    book: LeaseBook, asker: Asker
) -> None:
    grant(book, "a", tokens=40, conversation="who")
    grant(book, "b")
    book.claim("b", "read")
    status, listing = asker.ask("GET", "/leases", key=KEY)
    assert status == 200
    leases = listing.pop("leases")
    assert listing == {
        "epoch": "e1",
        "sequence": 3,
        "now": 5000.0,
        "counts": {"granted": 1, "claimed": 1, "reading": 0},
    }
    assert leases[0] == {
        "id": "a",
        "conversation": "who",
        "state": "granted",
        "tokens": 40,
        "blocks": 3,
        "created": 5000.0,
        "expires": 5100.0,
        "deadline": None,
    }
    assert (leases[1]["state"], leases[1]["deadline"]) == ("claimed", 5010.0)


def test_a_claim_for_a_read_gives_the_handle_and_a_new_token(
    book: LeaseBook, port: int, asker: Asker
) -> None:
    given = grant(book, "a", conversation="who")
    status, claimed = asker.ask("POST", "/leases/a/claim", {"for": "read"}, KEY)
    assert status == 200
    ours = claimed["kv_transfer_params"].pop("disaggpair")
    assert claimed["kv_transfer_params"] == given.handle  # those of vLLM
    assert claimed["lease"]["state"] == "claimed"
    assert (ours["lease"], ours["port"], ours["conversation"]) == ("a", port, "who")
    assert asker.code("POST", "/leases/a/read", {"token": given.token}) == "403 token"
    assert asker.ask("POST", "/leases/a/read", {"token": ours["token"]})[0] == 200


def test_a_claim_for_a_direct_turn_gives_no_parameters_of_vllm(
    book: LeaseBook, asker: Asker
) -> None:
    grant(book, "a")
    _, claimed = asker.ask("POST", "/leases/a/claim", {"for": "direct"}, KEY)
    assert claimed["kv_transfer_params"].keys() == {"disaggpair"}
    token = claimed["kv_transfer_params"]["disaggpair"]["token"]
    assert book.redeem_direct("a", token).state == "claimed"


def test_a_lease_is_claimed_once(book: LeaseBook, asker: Asker) -> None:
    grant(book, "a")
    assert asker.ask("POST", "/leases/a/claim", {"for": "read"}, KEY)[0] == 200
    assert asker.code("POST", "/leases/a/claim", {"for": "read"}, KEY) == "409 taken"
    assert asker.code("POST", "/leases/b/claim", {"for": "read"}, KEY) == "404 unknown"
    assert asker.code("POST", "/leases/a/claim", {"for": "fun"}, KEY) == "400 body"


def test_a_read_says_which_tokens_are_held_and_can_be_asked_once(
    book: LeaseBook, asker: Asker
) -> None:
    lease = grant(book, "a")
    status, answer = asker.ask("POST", "/leases/a/read", {"token": lease.token})
    read = wire.decode_read(json.dumps(answer).encode())
    assert status == 200
    assert (read.digests, read.deadline_s, read.block_size) == (lease.digests, 20.0, BLOCK_SIZE)
    assert asker.code("POST", "/leases/a/read", {"token": lease.token}) == "409 taken"


def test_a_reader_is_told_less_time_than_its_blocks_are_kept(
    book: LeaseBook, clock: Clock, asker: Asker
) -> None:
    lease = grant(book, "a")
    _, answer = asker.ask("POST", "/leases/a/read", {"token": lease.token})
    clock.now += answer["deadline_s"] + 1
    assert book.counts()["reading"] == 1
    clock.now += 1
    assert asker.code("POST", "/leases/a/release", {"token": answer["token"]}) == "404 unknown"


def test_a_token_is_of_one_lease(book: LeaseBook, asker: Asker) -> None:
    lease = grant(book, "a")
    grant(book, "b")
    for action in ("read", "release", "finish"):
        path = f"/leases/b/{action}"
        assert asker.code("POST", path, {"token": lease.token}) == "403 token"
        assert asker.code("POST", path, {"token": 5}) == "400 body"
        assert asker.code("POST", path) == "400 body"
        path = f"/leases/c/{action}"
        assert asker.code("POST", path, {"token": lease.token}) == "404 unknown"


def test_who_has_the_token_releases(book: LeaseBook, asker: Asker) -> None:
    lease = grant(book, "a")
    assert asker.ask("POST", "/leases/a/release", {"token": lease.token}) == (204, None)
    assert asker.code("POST", "/leases/a/release", {"token": lease.token}) == "404 unknown"
    assert [ended.id for ended in book.take_ended()] == ["a"]


@pytest.mark.parametrize(("action", "reason"), [("release", "released"), ("finish", "read")])
def test_only_its_reader_ends_a_read(
    book: LeaseBook, asker: Asker, action: str, reason: EndReason
) -> None:
    lease = grant(book, "a")
    _, answer = asker.ask("POST", "/leases/a/read", {"token": lease.token})
    assert asker.code("POST", f"/leases/a/{action}", {"token": lease.token}) == "403 token"
    assert book.counts()["reading"] == 1
    assert asker.ask("POST", f"/leases/a/{action}", {"token": answer["token"]}) == (204, None)
    assert book.counters.ended[reason] == 1


def test_what_is_not_being_read_is_not_finished(book: LeaseBook, asker: Asker) -> None:
    lease = grant(book, "a")
    assert asker.code("POST", "/leases/a/finish", {"token": lease.token}) == "409 taken"


def test_who_has_the_key_releases_all_but_what_is_being_read(book: LeaseBook, asker: Asker) -> None:
    lease = grant(book, "a")
    grant(book, "b")
    asker.ask("POST", "/leases/a/read", {"token": lease.token})
    assert asker.code("DELETE", "/leases/a", key=KEY) == "409 taken"
    assert asker.ask("DELETE", "/leases/b", key=KEY) == (204, None)
    assert asker.code("DELETE", "/leases/b", key=KEY) == "404 unknown"


KEYED = [
    ("GET", "/leases"),
    ("GET", "/leases/watch?epoch=e1&since=0"),
    ("POST", "/leases/a/claim"),
    ("DELETE", "/leases/a"),
]


@pytest.mark.parametrize(("method", "path"), KEYED)
@pytest.mark.parametrize("key", [None, "another", "the-ke", "the-key2", "THE-KEY", "ключ"])
def test_the_routers_routes_need_its_key(
    book: LeaseBook, asker: Asker, method: str, path: str, key: str | None
) -> None:
    grant(book, "a")
    assert asker.code(method, path, {"for": "read"}, key) == "403 key"
    assert book.sequence == 1


def test_the_key_is_a_bearer_key_and_no_other(client: RawClient) -> None:
    for scheme in (f"Basic {KEY}", KEY, f"Bearer{KEY}", f"Bearer x {KEY}"):
        client.send(f"GET /leases HTTP/1.1\r\nhost: d\r\nauthorization: {scheme}\r\n\r\n".encode())
        assert client.answer()[0] == 403
    client.send(
        f"GET /leases HTTP/1.1\r\nhost: d\r\nAuthorization: bearer  {KEY} \r\n\r\n".encode()
    )
    assert client.answer()[0] == 200


@pytest.mark.parametrize("key", [None, ""])
def test_without_a_key_the_routers_routes_say_so_and_the_others_work(
    book: LeaseBook, key: str | None
) -> None:
    listener = listener_of(book, key=key)
    lease = grant(book, "a")
    with RawClient("127.0.0.1", listener.start()) as client:
        asker = Asker(client)
        for method, path in KEYED:
            status, answer = asker.ask(method, path, {"for": "read"}, "")
            assert (status, answer["error"]["code"]) == (403, "no_key")
            assert "DISAGGPAIR_LEASE_KEY" in answer["error"]["message"]
        assert asker.ask("POST", "/leases/a/read", {"token": lease.token})[0] == 200
    listener.stop()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("GET", "/lease"),
        ("GET", "/leases/"),
        ("GET", "/leases/a"),
        ("PUT", "/leases/a"),
        ("POST", "/leases"),
        ("POST", "/leases/a"),
        ("POST", "/leases/a/claims"),
        ("POST", "/leases/a/claim/"),
        ("POST", "//leases/a/claim"),
        ("DELETE", "/leases"),
        ("GET", "/leases/a/read"),
        ("DELETE", "/leases/a/release"),
    ],
)
def test_other_paths_and_methods_are_not_there(asker: Asker, method: str, path: str) -> None:
    assert asker.code(method, path, {"for": "read"}, KEY) == "404 route"


def test_an_id_of_anything_is_an_unknown_lease(asker: Asker) -> None:
    for name in ("%2e%2e", "..", "watch", "a%00", "~" * 1000):
        assert asker.code("DELETE", f"/leases/{name}", key=KEY) == "404 unknown"


def test_neither_key_nor_token_reaches_a_log(
    book: LeaseBook, asker: Asker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    lease = grant(book, "a")

    def fail(lease_id: str, token: str) -> Any:
        raise RuntimeError("broken")

    monkeypatch.setattr(book, "read", fail)
    assert asker.code("POST", "/leases/a/claim", {"for": "read"}, "wrong-key") == "403 key"
    assert asker.code("POST", "/leases/a/release", {"token": "wrong-token"}) == "403 token"
    assert asker.code("POST", "/leases/a/read", {"token": lease.token}) == "500 internal"
    assert "broken" in caplog.text
    for secret in (KEY, "wrong-key", "wrong-token", lease.token):
        assert secret not in caplog.text


def test_it_listens_on_addresses_of_both_kinds(book: LeaseBook) -> None:
    listener = listener_of(book, host="::1")
    try:
        port = listener.start()
    except ConfigError:
        pytest.skip("this machine has no IPv6")
    assert listener.address == f"[::1]:{port}"
    with RawClient("::1", port) as client:
        assert Asker(client).ask("GET", "/leases", key=KEY)[0] == 200
    listener.stop()


def test_the_wildcard_of_ipv6_takes_ipv4_too(book: LeaseBook) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    listener = listener_of(book, host="::")
    with RawClient("127.0.0.1", listener.start()) as client:
        assert Asker(client).ask("GET", "/leases", key=KEY)[0] == 200
    listener.stop()


def test_a_name_is_listened_on(book: LeaseBook) -> None:
    listener = listener_of(book, host="localhost")
    port = listener.start()
    assert listener.address.endswith(f":{port}")
    listener.stop()


def test_a_port_that_is_taken_is_named_with_what_to_change() -> None:
    with listening_socket("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(ConfigError) as caught:
            listening_socket("127.0.0.1", port)
    assert str(caught.value) == (
        f"The lease listener cannot listen on port {port} of 127.0.0.1 (Address already in use): "
        "set kv_connector_extra_config.lease_port to a free port, or "
        "VLLM_NIXL_SIDE_CHANNEL_HOST to an address of this machine."
    )


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("192.0.2.1", 0),
        ("no-such-host.invalid", 0),
        ("127.0.0.1", 70_000),
        ("127.0.0.1", -1),
        ("a" * 70 + ".b", 0),
        ("a\0b", 0),
    ],
)
def test_an_address_that_is_none_of_this_machine_is_named(host: str, port: int) -> None:
    with pytest.raises(ConfigError) as caught:
        listening_socket(host, port)
    assert f"port {port} of {host} (" in str(caught.value)


def test_a_stop_before_a_start_is_none(book: LeaseBook) -> None:
    listener_of(book).stop()
