"""Errors of the API in the shape that vLLM gives them.

ApiError
"""

from typing import Any

import orjson
from aiohttp import web


class ApiError(Exception):
    """A request that is not served."""

    def __init__(
        self, status: int, message: str, kind: str = "BadRequestError", param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param

    def body(self) -> dict[str, Any]:
        """The JSON body."""
        return {
            "error": {
                "message": self.message,
                "type": self.kind,
                "param": self.param,
                "code": self.status,
            }
        }

    def response(self) -> web.Response:
        """The whole answer."""
        return web.json_response(
            self.body(), status=self.status, dumps=lambda body: orjson.dumps(body).decode()
        )


def internal_error() -> ApiError:
    """What a client sees of a failed load and of a dead core."""
    return ApiError(500, "Internal server error", "InternalServerError")
