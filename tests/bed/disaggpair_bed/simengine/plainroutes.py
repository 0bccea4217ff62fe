"""Routes that do not generate: health, models, metrics, the tokenizer."""

from array import array
from collections.abc import Mapping
from typing import Any

import orjson
from aiohttp import web

from disaggpair_bed.simengine import apirequest, messagesrequest, metrics
from disaggpair_bed.simengine import tokens as vocabulary
from disaggpair_bed.simengine.answers import json_response
from disaggpair_bed.simengine.apierrors import ApiError
from disaggpair_bed.simengine.faults import Faults
from disaggpair_bed.simengine.ranks import Ranks


def add_routes(router: web.UrlDispatcher, ranks: Ranks, faults: Faults) -> None:
    """Mount the routes."""
    plain = _Plain(ranks, faults)
    router.add_get("/v1/models", plain.models)
    router.add_get("/health", plain.health)
    router.add_get("/ping", plain.health)
    router.add_get("/version", plain.version)
    router.add_get("/load", plain.load)
    router.add_get("/metrics", plain.metrics)
    router.add_post("/tokenize", plain.tokenize)
    router.add_post("/detokenize", plain.detokenize)
    router.add_post("/v1/messages/count_tokens", plain.count_tokens)


class _Plain:
    def __init__(self, ranks: Ranks, faults: Faults) -> None:
        self._ranks = ranks
        self._options = ranks.options
        self._faults = faults

    async def models(self, _: web.Request) -> web.Response:
        options = self._options
        cards = [self._card(name, options.model, None) for name in options.names]
        cards += [
            self._card(adapter.lora_name, adapter.lora_path, options.names[0])
            for adapter in options.adapters
        ]
        return json_response({"object": "list", "data": cards})

    def _card(self, name: str, root: str, parent: str | None) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": 0,
            "owned_by": "vllm",
            "root": root,
            "parent": parent,
            "max_model_len": None if parent else self._options.core.max_model_len,
            "permission": [],
        }

    async def health(self, _: web.Request) -> web.Response:
        bad = bool(self._ranks.death) or self._faults.take("unhealthy") is not None
        return web.Response(status=503 if bad else 200)

    async def version(self, _: web.Request) -> web.Response:
        return json_response({"version": str(self._options.release)})

    async def load(self, _: web.Request) -> web.Response:
        return json_response({"server_load": self._ranks.in_flight})

    async def metrics(self, _: web.Request) -> web.Response:
        cores = [engine.core for engine in self._ranks.engines]
        text = metrics.render(cores, self._options.names[0], self._options.release)
        return web.Response(text=text, headers={"Content-Type": metrics.CONTENT_TYPE})

    async def tokenize(self, request: web.Request) -> web.Response:
        body = await _body(request)
        apirequest.known_model(body, self._options)
        prompt = self._prompt(body)
        strings = [_string(token) for token in prompt] if body.get("return_token_strs") else None
        return json_response(
            {
                "count": len(prompt),
                "max_model_len": self._options.core.max_model_len,
                "tokens": prompt.tolist(),
                "token_strs": strings,
            }
        )

    def _prompt(self, body: Mapping[str, Any]) -> "array[int]":
        if body.get("prompt") is None:
            return apirequest.rendered(body, self._options)
        start = (vocabulary.BEGIN,) if body.get("add_special_tokens", True) else ()
        return array("Q", start) + vocabulary.encode(str(body["prompt"]))

    async def detokenize(self, request: web.Request) -> web.Response:
        tokens = apirequest.token_ids((await _body(request)).get("tokens"), "tokens")
        return json_response({"prompt": "".join(map(_string, tokens))})

    async def count_tokens(self, request: web.Request) -> web.Response:
        chat = messagesrequest.as_chat({"max_tokens": 1, **await _body(request)})
        count = len(apirequest.rendered(chat, self._options))
        return json_response({"input_tokens": count})


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        body = orjson.loads(await request.read())
    except orjson.JSONDecodeError as error:
        raise ApiError(400, f"JSON decode error: {error}") from None
    if not isinstance(body, dict):
        raise ApiError(400, "the body must be a JSON object")
    return body


def _string(token: int) -> str:
    return vocabulary.SPECIAL_TEXT.get(token) or vocabulary.decode((token,))
