"""The D leg: the answer to the client, and D's handle out of it.

Three shapes: a whole answer, a stream that passes through, and a stream for the client made of a
whole answer (engines before vLLM 0.33 give no handle in a stream).

When the client leaves, the leg ends as soon as that is safe: before the first byte D may be
reading from P, and aborting a request in that time has crashed engines; after it, at once.
"""

import orjson

from disaggpair_connector.contract import KV_TRANSFER_PARAMS
from disaggpair_router.answer import as_events
from disaggpair_router.client import Client
from disaggpair_router.config import Limits, Timeouts
from disaggpair_router.decodestream import DecodeStream
from disaggpair_router.endpoints import Endpoints
from disaggpair_router.errors import ClientLeft, EngineFailed
from disaggpair_router.held import TurnKV
from disaggpair_router.kv import Json, decode_body
from disaggpair_router.pick import Endpoint
from disaggpair_router.plan import Plan
from disaggpair_router.prefill import Prefilled
from disaggpair_router.relay import StreamRelay
from disaggpair_router.request import TurnRequest
from disaggpair_router.seen.turns import SeenTurn
from disaggpair_router.upstream import Engines, Reply, error_in_stream

_EOF_WAIT_S = 1.0
"""For the end of D's body after its end marker, so that the connection can be used again."""


class DecodeLeg:
    """Runs D legs; one object serves all turns."""

    def __init__(
        self,
        *,
        engines: Engines,
        endpoints: Endpoints,
        timeouts: Timeouts,
        limits: Limits,
    ) -> None:
        self._engines = engines
        self._endpoints = endpoints
        self._timeouts = timeouts
        self._limits = limits

    async def run(
        self,
        request: TurnRequest,
        kv: TurnKV,
        plan: Plan,
        prefilled: Prefilled,
        client: Client,
        record: SeenTurn,
    ) -> bytes | None:
        """The body for a client that does not stream; None when the client got a stream.

        Raises ClientError or EngineFailed, which is the answer unless the client's stream has
        begun, and ClientLeft.
        """
        params = kv.decode_params(prefilled.params, prefilled.decode)
        whole = not request.stream or (params is not None and kv.wants_whole)
        body = decode_body(request.body, params, whole=whole and request.stream)
        headers = request.headers
        if kv.rank is not None and prefilled.decode.name == kv.holder:
            headers = {**headers, "X-data-parallel-rank": str(kv.rank)}
        asked = kv if params is not None else None
        raw: bytes | None = None
        with (
            self._endpoints.leg(prefilled.decode),
            plan.decoding(prefilled.decode.name, direct=record.way == "DIRECT"),
            record.leg("decode", prefilled.decode, headers) as sent,
        ):
            async with self._engines.post(
                prefilled.decode,
                request.path,
                body,
                sent,
                limit_s=self._timeouts.decode_first_byte_s,
                sent=record.sent,
            ) as reply:
                if whole:
                    raw = await reply.whole(self._timeouts.decode_idle_s)
                    record.answered()
                else:
                    await self._stream(
                        request, asked, plan, prefilled.decode, reply, client, record
                    )
        if raw is None:
            await client.drained()  # D is done, the turn is not
            return None
        return await self._whole(request, asked, prefilled.decode, raw, client, record)

    async def _whole(
        self,
        request: TurnRequest,
        kv: TurnKV | None,
        decode: Endpoint,
        raw: bytes,
        client: Client,
        record: SeenTurn,
    ) -> bytes | None:
        body = _completion(raw)
        params = body.pop(KV_TRANSFER_PARAMS, None)
        record.add_usage(body.get("usage"))
        if client.is_gone:
            if kv is not None:
                kv.discard(decode, params)
            raise ClientLeft("decode")
        ending = request.shape.ending(body)
        if ending.has_failed:
            raise EngineFailed("The engine failed to serve the request.")
        if kv is not None:
            usage = body.get("usage")
            kv.keep(decode, params, ending.answer, usage, is_clean=ending.is_clean)
        if not request.stream:
            # Only a body that held our keys is written anew.
            return _serialized(body) if KV_TRANSFER_PARAMS.encode() in raw else raw
        for event in as_events(body, include_usage=request.include_usage):
            record.first_byte()
            if client.send(event):
                await client.drained()
            record.delivered()
        return None

    async def _stream(
        self,
        request: TurnRequest,
        kv: TurnKV | None,
        plan: Plan,
        decode: Endpoint,
        reply: Reply,
        client: Client,
        record: SeenTurn,
    ) -> None:
        if not reply.is_stream:
            raise EngineFailed("The engine answered a stream request without a stream.")
        relay = StreamRelay(
            request.shape.stream,
            max_event_bytes=self._limits.max_answer_bytes,
            max_answer_bytes=self._limits.max_answer_bytes if kv and kv.wants_answer else -1,
        )

        def keep() -> None:
            if kv is not None:
                kv.keep(decode, relay.params, relay.answer(), relay.usage, is_clean=relay.is_clean)

        stream = DecodeStream(relay, reply, client, record=record, plan=plan, keep=keep)
        await stream.run(self._timeouts.decode_first_byte_s, self._timeouts.decode_idle_s)
        record.add_usage(relay.usage)
        await reply.read(_EOF_WAIT_S)


def _serialized(body: Json) -> bytes:
    try:
        return orjson.dumps(body)
    except orjson.JSONEncodeError:
        raise EngineFailed("The engine's answer is nested too deeply.") from None


def _completion(raw: bytes) -> Json:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        body = None
    if not isinstance(body, dict):
        raise EngineFailed("The engine's answer is not a JSON object.")
    error = body.get("error")
    if isinstance(error, dict):
        raise error_in_stream(error)
    return body
