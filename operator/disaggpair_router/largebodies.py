"""Requests that take long are read in a process of their own, so that no other turn waits for them.

Parsing ten megabytes and the digests of their history take a processor for tens of milliseconds
and up, and hold the interpreter's lock all the time: a thread would not help. The other process
does what `request` does and gives back the same, with whatever is long in the body as JSON text
that the legs pass on as it is: to take over a request costs by its fields, which are bounded.
"""

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import orjson
from multidict import CIMultiDict

from disaggpair_router.door import Caller
from disaggpair_router.errors import BadRequest, NoEndpoint, RouterError
from disaggpair_router.kv import Api, Json
from disaggpair_router.readingprocess import Answering, Closed, Late, Lost, ReadingProcess
from disaggpair_router.request import TOO_DEEP, RequestReader, TurnRequest, edited_body
from disaggpair_router.structure import check_values, is_quick

logger = logging.getLogger(__name__)

_LIMIT_S: Final = 5.0
_LIMIT_S_PER_BYTE: Final = 0.5e-6
_SHORT_BYTES: Final = 128
"""Objects and lists from here on stay text."""
_SHORT_TEXT: Final = 4_096
"""Texts from here on stay JSON."""

_Question = tuple[Api, Mapping[str, str], str, Caller] | None
"""What is known of a turn's request besides its body; None asks for the body alone."""


class Requests:
    """Reads all requests, the quick ones at once.

    The other process starts with the first that is not. Where none can be started, such a request
    is read like a quick one. A body that takes more than `limit_s` and half a second for each
    megabyte is refused, so that others do not wait for it.
    """

    def __init__(self, reader: RequestReader, *, limit_s: float = _LIMIT_S) -> None:
        self.reader = reader
        self._limit_s = limit_s
        self._process = ReadingProcess(_answering, reader)
        self._thread: ThreadPoolExecutor | None = None

    @property
    def pid(self) -> int | None:
        """Of the other process; None while there is none."""
        return self._process.pid

    async def read(
        self, api: Api, raw: bytes, headers: Mapping[str, str], given_id: str, caller: Caller
    ) -> TurnRequest:
        """See `RequestReader.read`."""
        if is_quick(raw):
            return self.reader.read(api, raw, headers, given_id, caller)
        question = (api, CIMultiDict(headers), given_id, caller)
        read: TurnRequest = await self._elsewhere(question, raw)
        return replace(read, body=_restored(read.body))

    async def body(self, raw: bytes) -> Json:
        """See `edited_body`; of a request that is no turn."""
        return edited_body(raw) if is_quick(raw) else _restored(await self._elsewhere(None, raw))

    def close(self) -> None:
        """End the other process for good."""
        self._process.close()
        if self._thread is not None:
            self._thread.submit(self._process.end)
            self._thread.shutdown()

    async def _elsewhere(self, question: _Question, raw: bytes) -> Any:
        """What the other process makes of it."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="requests")
        loop = asyncio.get_running_loop()
        limit_s = self._limit_s + len(raw) * _LIMIT_S_PER_BYTE
        ask = partial(self._process.ask, question, raw, limit_s)
        try:
            read = await loop.run_in_executor(self._thread, ask)
        except Late:
            logger.warning("a body of %d bytes took more than %.0f s to read", len(raw), limit_s)
            raise BadRequest("The body takes too long to read.") from None
        except Lost:
            raise RouterError("The router failed to read the body.") from None
        except Closed:
            raise NoEndpoint("This router is shutting down.") from None
        except OSError as error:
            logger.warning("large requests are read in this process: %s", error)
            return _read(self.reader, question, raw)
        if isinstance(read, str):
            raise BadRequest(read)
        return read


@dataclass(frozen=True, slots=True)
class _Text:
    """A member as JSON."""

    json: bytes


def _answering(reader: RequestReader) -> Answering:
    """What the other process does."""

    def answer(question: _Question, raw: bytes) -> object:
        try:
            return _shortened(_read(reader, question, raw))
        except BadRequest as error:
            return str(error)
        except (orjson.JSONEncodeError, RecursionError):
            return TOO_DEEP

    return answer


def _read(reader: RequestReader, question: _Question, raw: bytes) -> TurnRequest | Json:
    check_values(raw)
    return edited_body(raw) if question is None else reader.read(question[0], raw, *question[1:])


def _shortened(read: TurnRequest | Json) -> TurnRequest | Json:
    if isinstance(read, TurnRequest):
        return replace(read, body=_shorter(read.body))
    return _shorter(read)


def _shorter(body: Json) -> Json:
    return {name: _short(value) for name, value in body.items()}


def _short(value: object) -> object:
    if isinstance(value, str):
        return value if len(value) < _SHORT_TEXT else _Text(orjson.dumps(value))
    text = orjson.dumps(value)
    return value if len(text) < _SHORT_BYTES else _Text(text)


def _restored(body: Json) -> Json:
    return {
        name: orjson.Fragment(value.json) if isinstance(value, _Text) else value
        for name, value in body.items()
    }
