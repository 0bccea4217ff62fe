"""JSON answers of the engine's HTTP server."""

import orjson
from aiohttp import web


def json_response(body: object, *, status: int = 200) -> web.Response:
    """A JSON answer."""
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")
