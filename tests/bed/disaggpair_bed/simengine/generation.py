"""Serving of one generation request: from a body to bytes on the client's connection."""

import asyncio
from dataclasses import dataclass, replace
from typing import Any

import orjson
from aiohttp import web

from disaggpair_bed.simengine.apierrors import ApiError, internal_error
from disaggpair_bed.simengine.apireply import Choice
from disaggpair_bed.simengine.apirequest import Call
from disaggpair_bed.simengine.apis import Api
from disaggpair_bed.simengine.early import early_answer
from disaggpair_bed.simengine.engine import Engine, EngineDeadError
from disaggpair_bed.simengine.faults import Fault, Faults
from disaggpair_bed.simengine.ranks import RANK_HEADER, RankError, Ranks
from disaggpair_bed.simengine.recorder import Recorder
from disaggpair_bed.simengine.run import Run
from disaggpair_bed.simengine.sequence import Delta
from disaggpair_bed.simengine.sse import SSE, Writer, reset

_NO_JSON = b'{"id": "broken", "choices": ['


class Generation:
    """Handler of one generation route."""

    def __init__(self, api: Api, ranks: Ranks, faults: Faults, recorder: Recorder) -> None:
        self._api = api
        self._ranks = ranks
        self._faults = faults
        self._recorder = recorder

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer a request.

        Raises:
            ApiError: it is not served.
        """
        raw = await request.read()
        self._recorder.add(request.path, request.headers, raw)
        try:
            if early := await early_answer(request, self._ranks, self._faults):
                return early
            return await self._run(request, *self._parse(request, raw))
        except EngineDeadError:
            raise self._api.translate(internal_error()) from None

    async def _run(self, request: web.Request, engine: Engine, call: Call) -> web.StreamResponse:
        run = Run(engine, self._api, call, request.headers.get("X-Request-Id"))
        try:
            run.submit()
            if call.stream:
                return await self._stream(request, run)
            return await self._whole(request, run)
        finally:
            run.abort()

    def _parse(self, request: web.Request, raw: bytes) -> tuple[Engine, Call]:
        body: object = None
        try:
            body = orjson.loads(raw)
            call = self._api.read(body, self._ranks.options)
            if self._ranks.is_paused:
                raise ApiError(503, "The engine is paused.", "ServiceUnavailableError")
            return self._rank(request), call
        except orjson.JSONDecodeError as error:
            raise ApiError(400, f"JSON decode error: {error}") from None
        except ApiError as error:
            params = body.get("kv_transfer_params") if isinstance(body, dict) else None
            if isinstance(params, dict):
                self._ranks.pick(None).refuse(params)
            raise self._api.translate(error) from None

    def _rank(self, request: web.Request) -> Engine:
        try:
            return self._ranks.pick(request.headers.get(RANK_HEADER))
        except RankError as error:
            raise ApiError(400, str(error)) from None

    # An answer in one piece.

    async def _whole(self, request: web.Request, run: Run) -> web.StreamResponse:
        drop = self._faults.take("drop_after_read")
        params: dict[str, Any] | None = None
        failed = False
        async for _, delta in run.deltas():
            failed = failed or delta.finish_reason == "error"
            params = delta.params or params
        if drop:
            await reset(request)
        await self._slow()
        if failed:
            raise self._api.translate(internal_error())
        body = self._body(run, params)
        response = web.StreamResponse(
            headers={"Content-Type": "application/json", "Content-Length": str(len(body))}
        )
        writer = Writer(request, response, self._faults, stream=False)
        await writer.begin()
        await writer.write(body)
        await writer.end()
        return response

    def _body(self, run: Run, params: dict[str, Any] | None) -> bytes:
        if self._faults.take("null_params"):
            params = None
        if self._faults.take("empty_body"):
            return b""
        if self._faults.take("malformed_body"):
            return _NO_JSON
        if self._faults.take("finish_error"):
            params = None
            for choice in run.choices:
                choice.deltas[-1] = _failed(choice.last)
        return orjson.dumps(run.reply.whole(run.choices, params))

    async def _slow(self) -> None:
        if fault := self._faults.take("slow_first_byte"):
            await asyncio.sleep(fault.delay_s)

    # A stream.

    async def _stream(self, request: web.Request, run: Run) -> web.StreamResponse:
        faults = _StreamFaults.take(self._faults)
        response = web.StreamResponse(headers={"Content-Type": SSE})
        writer = Writer(request, response, self._faults, stream=True)
        await self._slow()
        await writer.begin()
        try:
            done = await self._relay(request, writer, run, faults)
        except EngineDeadError:
            done = False
        if faults.drop:
            await reset(request)
        if not done:
            broken = run.reply.broken(internal_error())
            if broken is None:
                await reset(request)
            await writer.write(broken or b"")
        elif not faults.ends_early:
            await writer.write(run.reply.ending(run.choices))
        await writer.end()
        return response

    async def _relay(
        self, request: web.Request, writer: Writer, run: Run, faults: "_StreamFaults"
    ) -> bool:
        """Write the chunks; False when the answer broke off."""
        sent = 0
        async for choice, delta in run.deltas():
            if delta.finish_reason == "error":
                return False
            if faults.drop or faults.empty:
                continue
            if faults.is_due("cut", sent):
                await reset(request)
            if faults.is_due("crash", sent):
                self._ranks.crash("a fault of the test bed")
            if faults.is_due("error", sent):
                return False
            if faults.is_due("truncate", sent):
                return True
            if faults.is_due("malformed", sent):
                await writer.write(b"data: " + _NO_JSON + b"\n\n")
            await self._chunk(writer, run, choice, faults.changed(choice, delta))
            sent += 1
        return True

    async def _chunk(self, writer: Writer, run: Run, choice: Choice, delta: Delta) -> None:
        if len(choice.deltas) == 1:
            await writer.write(run.reply.opening(choice))
        await writer.write(run.reply.chunk(choice, delta))


def _failed(delta: Delta) -> Delta:
    return replace(delta, finish_reason="error", stop_reason=None, params=None)


@dataclass(frozen=True)
class _StreamFaults:
    """Faults that act on one stream."""

    drop: Fault | None
    empty: Fault | None
    null_params: Fault | None
    finish_error: Fault | None
    omit_end: Fault | None
    due: dict[str, Fault | None]
    """Those that act once after some chunks."""

    @classmethod
    def take(cls, faults: Faults) -> "_StreamFaults":
        return cls(
            drop=faults.take("drop_after_read"),
            empty=faults.take("empty_body"),
            null_params=faults.take("null_params"),
            finish_error=faults.take("finish_error"),
            omit_end=faults.take("omit_end"),
            due={
                "cut": faults.take("cut_stream"),
                "crash": faults.take("crash_stream"),
                "error": faults.take("stream_error"),
                "truncate": faults.take("truncate_stream"),
                "malformed": faults.take("malformed_body"),
            },
        )

    @property
    def ends_early(self) -> bool:
        """Whether nothing follows the chunks."""
        return bool(self.empty or self.omit_end or self.due["truncate"])

    def is_due(self, name: str, sent: int) -> bool:
        """Whether a fault acts before the next chunk."""
        fault = self.due[name]
        return fault is not None and sent == fault.after

    def changed(self, choice: Choice, delta: Delta) -> Delta:
        """A delta as it is shown, and remembered."""
        if self.null_params:
            delta = replace(delta, params=None)
        if self.finish_error and delta.finish_reason is not None:
            delta = _failed(delta)
        choice.deltas[-1] = delta
        return delta
