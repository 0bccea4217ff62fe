"""The router's errors and the one place that turns them into an answer.

RouterError
  ClientError         the request cannot be served as it is
    BadRequest        400
      Unsendable      400: it cannot be written as JSON again, so no engine saw anything of it
    Unauthorized      401: the API key is missing or not known
    Forbidden         403: not from here, or not for this tenant
    BodyTooLarge      413
    HeadTooLarge      431
    RequestLate       408: the rest of it did not come
    UnsupportedEncoding 415
    UnknownRoute      404
    EngineRefused     4xx: an engine's own status and message, without its addresses
  NoEndpoint          503: no engine is ready, or this router is going away
  Overloaded          503: this router has as much to do as it may
  EngineFailed        502: an engine's 5xx, a broken connection, an answer that makes no sense
    Unreachable       502: no connection was made, so the engine saw nothing of the request
    EngineBusy        503: the engine itself asks to come back later
    EngineTimeout     504
"""

import re
from typing import Final, Literal

import orjson

_MESSAGE_LIMIT = 1_000
# URLs, host:port, bracketed and bare IPv6, IPv4: an engine's message may name its peers.
_ADDRESS = re.compile(
    r"""[a-z][a-z0-9+.-]*://[^\s"'<>)]+
      | \[[0-9a-f:.%]*:[0-9a-f:.%]*\](?::\d+)?
      | \b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?
      | (?<![\w:])(?:[0-9a-f]{0,4}:){3,7}[0-9a-f]{0,4}(?![\w:])
      | \b[a-z0-9-]+(?:\.[a-z0-9-]+)+:\d+
      | \blocalhost(?::\d+)?""",
    re.IGNORECASE | re.VERBOSE,
)


class ConfigError(ValueError):
    """Ends the start of the process. One sentence: field, value, what is allowed; no secret."""


class RouterError(Exception):
    """An answer that is not a completion. The text of the exception is shown to the client."""

    status = 500
    kind = "internal_error"
    """Value of `error.type` in the answer."""
    code = "internal_error"
    """Value of `error.code`, and of the label of the error counter."""

    def __init__(self, message: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = retry_after_s


class ClientError(RouterError):
    """The same request would fail again."""

    kind = "invalid_request_error"


class BadRequest(ClientError):
    """The body or a header is malformed."""

    status, code = 400, "bad_request"


class Unsendable(BadRequest):
    """The body was read but cannot be written again; nothing was sent."""


class Unauthorized(ClientError):
    """The caller has shown no key that is known."""

    status, code = 401, "invalid_api_key"


class Forbidden(ClientError):
    """The caller may not ask, or not as this tenant."""

    status, code = 403, "forbidden"


class BodyTooLarge(ClientError):
    """The body is over the configured bound."""

    status, code = 413, "body_too_large"


class HeadTooLarge(ClientError):
    """Path and headers are over their bound."""

    status, code = 431, "head_too_large"


class RequestLate(ClientError):
    """The client did not send the rest of its request."""

    status, code = 408, "request_timeout"


class UnsupportedEncoding(ClientError):
    """The body is compressed."""

    status, code = 415, "unsupported_content_encoding"


class UnknownRoute(ClientError):
    """The path is not one of the routes that are offered."""

    status, code = 404, "unknown_route"


class EngineRefused(ClientError):
    """An engine answered 4xx, which is about the client's request."""

    code = "refused_by_engine"

    def __init__(self, status: int, message: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.status = status


class NoEndpoint(RouterError):
    """Nothing is ready that could serve the turn."""

    status, kind, code = 503, "service_unavailable", "no_endpoint"


class Overloaded(RouterError):
    """More turns or bytes are in work than this router may hold."""

    status, kind, code = 503, "service_unavailable", "overloaded"


class EngineFailed(RouterError):
    """An engine's fault; its own words are not passed on."""

    status, kind, code = 502, "engine_error", "engine_failed"


class Unreachable(EngineFailed):
    """No connection was made: nothing of the request can have been acted on."""

    code = "engine_unreachable"


class EngineBusy(EngineFailed):
    """The engine answered 503."""

    status, kind, code = 503, "service_unavailable", "engine_busy"


class EngineTimeout(EngineFailed):
    """A time limit ran out while waiting for an engine."""

    status, code = 504, "engine_timeout"


def _codes(kind: type[RouterError]) -> set[str]:
    return {kind.code}.union(*map(_codes, kind.__subclasses__()))


ERROR_CODES: Final = tuple(sorted(_codes(RouterError)))
"""Every `code`, the values of a label of the error counter."""

DisconnectStage = Literal["before", "prefill", "decode", "stream"]
"""How far a turn was when its client left; a label of the disconnect counter."""


class ClientLeft(Exception):
    """Nobody waits for the answer any more."""

    def __init__(self, stage: DisconnectStage) -> None:
        super().__init__(stage)
        self.stage = stage


def public_message(text: str) -> str:
    """An engine's message without addresses and bounded in length."""
    return _ADDRESS.sub("[address]", text[: 2 * _MESSAGE_LIMIT])[:_MESSAGE_LIMIT]


def error_body(error: Exception, request_id: str) -> bytes:
    """The OpenAI error object, also used as the data of an error event inside a stream."""
    known = error if isinstance(error, RouterError) else None
    return orjson.dumps(
        {
            "error": {
                "message": known.message if known else "The router failed to serve the request.",
                "type": known.kind if known else RouterError.kind,
                "param": None,
                "code": known.code if known else RouterError.code,
                "request_id": request_id,
            }
        }
    )


def error_head(error: Exception) -> tuple[int, dict[str, str]]:
    """Status and headers for any exception."""
    status = error.status if isinstance(error, RouterError) else RouterError.status
    headers = {}
    if isinstance(error, RouterError) and error.retry_after_s is not None:
        headers["Retry-After"] = str(error.retry_after_s)
    if status == Unauthorized.status:
        headers["WWW-Authenticate"] = "Bearer"
    return status, headers
