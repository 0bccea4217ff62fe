import orjson
import pytest

from disaggpair_router.errors import (
    BadRequest,
    BodyTooLarge,
    EngineBusy,
    EngineFailed,
    EngineRefused,
    EngineTimeout,
    NoEndpoint,
    RouterError,
    UnknownRoute,
    Unreachable,
    error_body,
    error_head,
    public_message,
)


@pytest.mark.parametrize(
    ("error", "status", "kind", "code"),
    [
        (BadRequest("x"), 400, "invalid_request_error", "bad_request"),
        (BodyTooLarge("x"), 413, "invalid_request_error", "body_too_large"),
        (UnknownRoute("x"), 404, "invalid_request_error", "unknown_route"),
        (EngineRefused(422, "x"), 422, "invalid_request_error", "refused_by_engine"),
        (NoEndpoint("x"), 503, "service_unavailable", "no_endpoint"),
        (EngineFailed("x"), 502, "engine_error", "engine_failed"),
        (Unreachable("x"), 502, "engine_error", "engine_unreachable"),
        (EngineBusy("x"), 503, "service_unavailable", "engine_busy"),
        (EngineTimeout("x"), 504, "engine_error", "engine_timeout"),
        (RouterError("x"), 500, "internal_error", "internal_error"),
    ],
)
def test_every_error_has_a_status_and_an_openai_body(
    error: RouterError, status: int, kind: str, code: str
) -> None:
    assert error_head(error) == (status, {})
    assert orjson.loads(error_body(error, "r-1")) == {
        "error": {"message": "x", "type": kind, "param": None, "code": code, "request_id": "r-1"}
    }


def test_an_unknown_exception_says_nothing_of_its_cause() -> None:
    error = ValueError("secret http://10.0.0.1")
    assert error_head(error) == (500, {})
    assert b"secret" not in error_body(error, "r-1")


def test_a_retry_hint_becomes_a_header() -> None:
    assert error_head(NoEndpoint("x", retry_after_s=2)) == (503, {"Retry-After": "2"})


@pytest.mark.parametrize(
    "address",
    [
        "http://10.0.0.4:8000/v1",
        "tcp://[fd00::4]:5600",
        "10.0.0.4",
        "10.0.0.4:5600",
        "[fd00::4]:5600",
        "fd00:0:0:0::4",
        "chat-prefill.default.svc:8000",
        "localhost:8000",
    ],
)
def test_h88_an_engines_message_loses_its_addresses(address: str) -> None:
    shown = public_message(f"cannot reach {address} now")
    assert shown == "cannot reach [address] now"


@pytest.mark.parametrize(
    "text", ["max_tokens must be at least 1, got -1.", "at 12:30:05 the value 1.5 was refused"]
)
def test_an_ordinary_message_is_unchanged(text: str) -> None:
    assert public_message(text) == text


def test_a_long_message_is_cut() -> None:
    assert len(public_message("a" * 5_000)) == 1_000
