"""Large requests are read in a process of their own, so that no other turn waits for them.

Parsing ten megabytes and the digests of their history take a processor for tens of milliseconds
and up, and hold the interpreter's lock all the time: a thread would not help. The other process
does what `request` does and gives back the same, with large members of the body as JSON text that
the legs pass on as it is.
"""

import asyncio
import logging
import multiprocessing
import signal
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from typing import Final

import orjson
from multidict import CIMultiDict

from disaggpair_router.door import Caller
from disaggpair_router.errors import BadRequest
from disaggpair_router.kv import Api, Json
from disaggpair_router.request import RequestReader, TurnRequest

logger = logging.getLogger(__name__)

LARGE_BYTES: Final = 512 * 1024
"""Bodies up to this take some milliseconds where they are."""
_MEMBER_BYTES: Final = 64 * 1024
"""Members of a body from here on stay text."""


class Requests:
    """Reads all requests, the small ones at once.

    The other process starts with the first large one. Where it cannot, or has been killed, a large
    request is read like a small one.
    """

    def __init__(self, reader: RequestReader) -> None:
        self.reader = reader
        self._pool: ProcessPoolExecutor | None = None

    async def read(
        self, api: Api, raw: bytes, headers: Mapping[str, str], given_id: str, caller: Caller
    ) -> TurnRequest:
        """See `RequestReader.read`."""
        if len(raw) <= LARGE_BYTES:
            return self.reader.read(api, raw, headers, given_id, caller)
        loop = asyncio.get_running_loop()
        sent = CIMultiDict(headers)
        try:
            if self._pool is None:
                self._pool = _new_pool(self.reader)
            read = loop.run_in_executor(self._pool, _read, api, raw, sent, given_id, caller)
            return _restored(await read)
        except (BrokenProcessPool, OSError) as error:
            logger.warning("large requests are read in this process: %s", error)
            self.close()
            return self.reader.read(api, raw, headers, given_id, caller)

    def close(self) -> None:
        """End the other process; the next large request starts it anew."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


@dataclass(frozen=True, slots=True)
class _Text:
    """A member as JSON."""

    json: bytes


_own: list[RequestReader] = []
"""The reader of the other process."""


def _new_pool(reader: RequestReader) -> ProcessPoolExecutor:
    # A fork would copy the loop and its sockets.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, mp_context=context, initializer=_begin, initargs=(reader,))


def _begin(reader: RequestReader) -> None:
    # A Ctrl-C at the terminal is for the router, which then ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _own[:] = [reader]


def _read(
    api: Api, raw: bytes, headers: Mapping[str, str], given_id: str, caller: Caller
) -> TurnRequest | str:
    """The request, or what is wrong with it."""
    try:
        request = _own[0].read(api, raw, headers, given_id, caller)
    except BadRequest as error:
        return str(error)
    body: Json = {}
    for name, value in request.body.items():
        text = orjson.dumps(value)
        body[name] = _Text(text) if len(text) >= _MEMBER_BYTES else value
    return replace(request, body=body)


def _restored(read: TurnRequest | str) -> TurnRequest:
    if isinstance(read, str):
        raise BadRequest(read)
    body = {
        name: orjson.Fragment(value.json) if isinstance(value, _Text) else value
        for name, value in read.body.items()
    }
    return replace(read, body=body)
