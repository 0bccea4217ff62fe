"""Serving of one generation request: from a body to bytes on the client's connection."""

import asyncio
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import orjson
from aiohttp import web

from disaggpair_bed.simengine import apirequest
from disaggpair_bed.simengine.apierrors import ApiError, internal_error
from disaggpair_bed.simengine.apireply import DONE, event
from disaggpair_bed.simengine.apirequest import Call
from disaggpair_bed.simengine.engine import Engine, EngineDeadError
from disaggpair_bed.simengine.faults import Fault, Faults
from disaggpair_bed.simengine.ranks import RANK_HEADER, RankError, Ranks
from disaggpair_bed.simengine.recorder import Recorder
from disaggpair_bed.simengine.run import Run

SSE = "text/event-stream; charset=utf-8"


class Generation:
    """Handler of the generation routes."""

    def __init__(self, ranks: Ranks, faults: Faults, recorder: Recorder) -> None:
        self._ranks = ranks
        self._faults = faults
        self._recorder = recorder

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/chat/completions."""
        return await self._serve(request, chat=True)

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/completions."""
        return await self._serve(request, chat=False)

    async def _serve(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        raw = await request.read()
        self._recorder.add(request.path, request.headers, raw)
        try:
            if early := await self._early_fault(request):
                return early
            return await self._run(request, self._parse(request, raw, chat=chat))
        except EngineDeadError:
            raise internal_error() from None

    async def _run(self, request: web.Request, wanted: tuple[Engine, Call]) -> web.StreamResponse:
        engine, call = wanted
        run = Run(engine, call, request.headers.get("X-Request-Id"))
        try:
            run.submit()
            if call.stream:
                return await self._stream(request, run)
            return await self._whole(request, run)
        finally:
            run.abort()

    def _parse(self, request: web.Request, raw: bytes, *, chat: bool) -> tuple[Engine, Call]:
        body: object = None
        try:
            body = orjson.loads(raw)
            call = apirequest.parse(body, chat=chat, options=self._ranks.options)
            return self._rank(request), call
        except orjson.JSONDecodeError as error:
            raise ApiError(400, f"JSON decode error: {error}") from None
        except ApiError:
            params = body.get("kv_transfer_params") if isinstance(body, dict) else None
            if isinstance(params, dict):
                self._ranks.pick(None).refuse(params)
            raise

    def _rank(self, request: web.Request) -> Engine:
        try:
            return self._ranks.pick(request.headers.get(RANK_HEADER))
        except RankError as error:
            raise ApiError(400, str(error)) from None

    async def _early_fault(self, request: web.Request) -> web.StreamResponse | None:
        """Faults that act before the request reaches the core."""
        if self._faults.take("hang"):
            await self._ranks.died.wait()
            raise EngineDeadError(self._ranks.death)
        if self._faults.take("reset"):
            await _reset(request)
        fault = self._faults.take("status")
        if fault is None:
            return None
        response = ApiError(
            fault.status, "a fault of the test bed", "ServiceUnavailable"
        ).response()
        if fault.retry_after is not None:
            response.headers["Retry-After"] = str(fault.retry_after)
        return response

    async def _whole(self, request: web.Request, run: Run) -> web.StreamResponse:
        drop = self._faults.take("drop_after_read")
        params: dict[str, Any] | None = None
        failed = False
        async for _, delta in run.deltas():
            failed = failed or delta.finish_reason == "error"
            params = delta.params or params
        if drop:
            await _reset(request)
        await self._slow()
        if failed:
            raise internal_error()
        if self._faults.take("null_params"):
            params = None
        body = orjson.dumps(run.reply.whole(run.choices, params))
        response = web.StreamResponse(
            headers={"Content-Type": "application/json", "Content-Length": str(len(body))}
        )
        await response.prepare(request)
        await self._write(response, body)
        await response.write_eof()
        return response

    async def _stream(self, request: web.Request, run: Run) -> web.StreamResponse:
        faults = _StreamFaults.take(self._faults)
        response = web.StreamResponse(headers={"Content-Type": SSE})
        await self._slow()
        await response.prepare(request)
        try:
            failed = not await self._relay(request, response, run, faults)
        except EngineDeadError:
            failed = True
        if faults.drop:
            await _reset(request)
        if failed:
            await self._write(response, event(internal_error().body()))
        elif run.call.include_usage:
            await self._write(response, run.reply.usage_chunk(run.choices))
        await self._write(response, DONE)
        await response.write_eof()
        return response

    async def _relay(
        self,
        request: web.Request,
        response: web.StreamResponse,
        run: Run,
        faults: "_StreamFaults",
    ) -> bool:
        """Write the chunks; False when the answer broke off."""
        sent = 0
        async for choice, delta in run.deltas():
            if delta.finish_reason == "error":
                return False
            if faults.drop:
                continue
            if faults.cut is not None and sent >= faults.cut.after:
                await _reset(request)
            if faults.error is not None and sent >= faults.error.after:
                return False
            if len(choice.deltas) == 1:
                await self._write(response, run.reply.opening(choice))
            shown = replace(delta, params=None) if faults.null_params else delta
            await self._write(response, run.reply.chunk(choice, shown))
            sent += 1
        return True

    async def _slow(self) -> None:
        if fault := self._faults.take("slow_first_byte"):
            await asyncio.sleep(fault.delay_s)

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        fault = self._faults.take("split_chunks") if data else None
        if fault is None:
            if data:
                await response.write(data)
            return
        for start in range(0, len(data), fault.size):
            await response.write(data[start : start + fault.size])
            await asyncio.sleep(0)


@dataclass(frozen=True)
class _StreamFaults:
    """Faults that act on one stream."""

    drop: Fault | None
    cut: Fault | None
    error: Fault | None
    null_params: Fault | None

    @classmethod
    def take(cls, faults: Faults) -> "_StreamFaults":
        return cls(
            drop=faults.take("drop_after_read"),
            cut=faults.take("cut_stream"),
            error=faults.take("stream_error"),
            null_params=faults.take("null_params"),
        )


async def _reset(request: web.Request) -> NoReturn:
    """Close the client's connection without another byte; the server then cancels the handler."""
    if request.transport is not None:
        request.transport.abort()
    await asyncio.Event().wait()
    raise AssertionError
