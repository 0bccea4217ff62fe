"""What the lease listener answers: requests in, answers out, over the book. No sockets.

Four of the routes are the router's and need its key. The others are for whoever has a lease's
token: a P that was sent there with D's handle, and has one of its own while it reads.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

from disaggpair_connector import contract, handle, wire
from disaggpair_connector.book import LeaseBook
from disaggpair_connector.lease import LeaseError, Purpose
from disaggpair_connector.listener_http import Refused, Request, answer

WATCH_S: Final = 60
MAX_WATCH_S: Final = 300

_REFUSALS: Final = {
    "unknown": (404, "There is no such lease, or it has ended."),
    "taken": (409, "The lease is claimed or being read."),
    "token": (403, "The token is not the lease's."),
}


@dataclass(frozen=True, slots=True)
class Watch:
    """A request to be told what happens, event after event."""

    since: int
    timeout_s: float


class Routes:
    """The listener's paths.

    Args:
        book: the leases.
        key: of the router's; None answers its four routes with 403.
        lease_port: of the listener, for the handles of claimed leases.
        block_size: tokens per block.
        read_s: what a reader is told that it has.
    """

    def __init__(
        self, book: LeaseBook, *, key: str | None, lease_port: int, block_size: int, read_s: float
    ) -> None:
        self._book = book
        self._key = key.encode() if key else None
        self.lease_port = lease_port
        self._block_size = block_size
        self._read_s = read_s

    def answer(self, request: Request) -> bytes | Watch:
        """The whole answer, or what is to be sent piece by piece.

        Raises:
            Refused: the answer is an error.
        """
        head = request.head
        match (head.method, *head.path.split("/")[1:]):
            case ("GET", "leases"):
                self._need_key(request)
                return answer(200, self._book.listing())
            case ("GET", "leases", "watch"):
                self._need_key(request)
                return self._watch(request)
            case ("DELETE", "leases", lease):
                self._need_key(request)
                return self._release(lease, None)
            case ("POST", "leases", lease, "claim"):
                self._need_key(request)
                return self._claim(lease, _purpose(request))
            case ("POST", "leases", lease, "read"):
                return self._read(lease, _token(request))
            case ("POST", "leases", lease, "finish"):
                return self._finish(lease, _token(request))
            case ("POST", "leases", lease, "release"):
                return self._release(lease, _token(request))
        raise Refused(404, "route", "There is no such path, or not with this method.")

    def _claim(self, lease_id: str, purpose: Purpose) -> bytes:
        try:
            lease = self._book.claim(lease_id, purpose)
        except LeaseError as error:
            _refuse(error)
        if purpose == "direct":
            params = handle.for_direct(lease)
        else:
            params = handle.for_lease(lease, self.lease_port)
        body = b'{"lease":%b,"kv_transfer_params":%b}' % (lease.text, wire.encode(params))
        return answer(200, body)

    def _read(self, lease_id: str, token: str) -> bytes:
        try:
            lease = self._book.read(lease_id, token)
        except LeaseError as error:
            _refuse(error)
        body = wire.encode_read(lease, block_size=self._block_size, deadline_s=self._read_s)
        return answer(200, body)

    def _finish(self, lease_id: str, token: str) -> bytes:
        try:
            self._book.finish_read(lease_id, token)
        except LeaseError as error:
            _refuse(error)
        return answer(204)

    def _release(self, lease_id: str, token: str | None) -> bytes:
        try:
            self._book.release(lease_id, token)
        except LeaseError as error:
            _refuse(error)
        return answer(204)

    def _watch(self, request: Request) -> Watch:
        given = request.parameters()
        watch = Watch(
            since=_count(given, "since", 2**63 - 1),
            timeout_s=_count(given, "timeout", MAX_WATCH_S, WATCH_S),
        )
        if given.get("epoch") != self._book.epoch:
            raise Refused(410, "gone", "The epoch is another's: list anew.")
        return watch

    def _need_key(self, request: Request) -> None:
        if self._key is None:
            message = f"No key was configured for this engine: set {contract.LEASE_KEY_ENV}."
            raise Refused(403, "no_key", message)
        scheme, _, key = (request.head.authorization or b"").partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(key.strip(), self._key):
            raise Refused(403, "key", "The bearer key is missing or is not this engine's.")


def _purpose(request: Request) -> Purpose:
    try:
        return wire.decode_purpose(request.body)
    except wire.Malformed as error:
        raise Refused(400, "body", f"The request is wrong: {error}.") from None


def _token(request: Request) -> str:
    try:
        return wire.decode_token(request.body)
    except wire.Malformed as error:
        raise Refused(400, "body", f"The request is wrong: {error}.") from None


def _count(given: Mapping[str, str], name: str, most: int, default: int | None = None) -> int:
    text = given.get(name)
    if text is None and default is not None:
        return default
    if text is None or not (text.isascii() and text.isdigit() and len(text) < 20):
        raise Refused(400, "query", f"The query needs {name}, a whole number.")
    if int(text) > most:
        raise Refused(400, "query", f"The query has a {name} above {most}.")
    return int(text)


def _refuse(error: LeaseError) -> NoReturn:
    status, message = _REFUSALS[error.code]
    raise Refused(status, error.code, message) from None
