"""Errors of the API in the shapes that vLLM gives them.

ApiError
├── AnthropicError
└── BodyError
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


_ANTHROPIC_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


class AnthropicError(ApiError):
    """A request to `/v1/messages` that is not served."""

    def body(self) -> dict[str, Any]:
        """The JSON body."""
        kind = _ANTHROPIC_KINDS.get(self.status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": self.message}}


class BodyError(ApiError):
    """A body that the framework refuses, in the same shape on all routes."""


def as_anthropic(error: ApiError) -> ApiError:
    """An error of the engine as `/v1/messages` shows it."""
    if isinstance(error, BodyError):
        return error
    return AnthropicError(error.status, error.message)


def internal_error() -> ApiError:
    """What a client sees of a failed load and of a dead core."""
    return ApiError(500, "Internal server error", "InternalServerError")
