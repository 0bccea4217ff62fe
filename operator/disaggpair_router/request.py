"""One request, read and bounded: what the client asked for, without what it may not ask for.

Called by `app` with the raw body; the result is what `turn` runs. No HTTP here.
"""

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from disaggpair_router.errors import BadRequest
from disaggpair_router.history import (
    ChatHistory,
    History,
    TextHistory,
    has_media,
    scope_digest,
)
from disaggpair_router.kv import Api, Json, without_transfer_keys

PATHS: Final[Mapping[Api, str]] = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
}
MAX_ID_BYTES: Final = 256
_MAX_REQUEST_ID: Final = 128
_FORWARDED: Final = ("authorization", "x-vllm-priority", "traceparent", "tracestate")
"""Request headers that reach the engines. A rank or request id of the client's would not fit."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """Which conversation a turn belongs to."""

    id: str
    key: bytes
    """Keyed digest of the id and of the caller's credentials, so that one caller's id never
    finds another one's conversation."""
    owner: bytes
    """Keyed digest of the credentials alone."""
    is_minted: bool
    """The client sent no id: its history has to tell which conversation it continues."""

    @property
    def label(self) -> str:
        """What logs show."""
        return self.key.hex()[:12]


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """A validated request."""

    api: Api
    body: Json
    """The client's fields, less transfer parameters and the conversation id."""
    stream: bool
    include_usage: bool
    conversation: Conversation
    history: History | None
    """None when this turn cannot use or leave a handle."""
    scope: bytes
    alone: bool
    """The turn must run on one engine, without transfer parameters."""
    request_id: str
    headers: Mapping[str, str]
    """What is forwarded to the engines."""

    @property
    def path(self) -> str:
        """Path of the route, the same at the engines."""
        return PATHS[self.api]

    @property
    def model(self) -> str:
        """The model name as sent, for the release request."""
        return str(self.body.get("model") or "")


class RequestReader:
    """Reads requests; holds what does not change between them."""

    def __init__(
        self,
        conversation_headers: Sequence[str],
        *,
        bidirectional: bool,
        verified_reads: bool = False,
    ) -> None:
        self._headers = conversation_headers
        self._bidirectional = bidirectional
        self._verified_reads = verified_reads
        self._secret = secrets.token_bytes(32)

    def read(self, api: Api, raw: bytes, headers: Mapping[str, str], given_id: str) -> TurnRequest:
        """The request, or BadRequest. `headers` is looked up without regard to case."""
        try:
            return self._read(api, raw, headers, given_id)
        except (orjson.JSONEncodeError, RecursionError):
            raise BadRequest("The body is nested too deeply.") from None

    def _read(self, api: Api, raw: bytes, headers: Mapping[str, str], given_id: str) -> TurnRequest:
        body = without_transfer_keys(_object(raw))
        conversation = self._conversation(body.pop("conversation_id", None), headers)
        stream = body.get("stream")
        if stream is not None and not isinstance(stream, bool):
            raise BadRequest("stream must be true or false.")
        options = body.get("stream_options")
        alone = must_run_alone(body)
        reusable = self._verified_reads or is_comparable(body)
        usable = self._bidirectional and reusable and not alone
        history = _history(api, body) if usable else None
        return TurnRequest(
            api=api,
            body=body,
            stream=bool(stream),
            include_usage=isinstance(options, dict) and options.get("include_usage") is True,
            conversation=conversation,
            history=history,
            scope=scope_digest(api, body) if history else b"",
            alone=alone,
            request_id=given_id,
            headers={name: headers[name] for name in _FORWARDED if name in headers},
        )

    def _conversation(self, from_body: object, headers: Mapping[str, str]) -> Conversation:
        if from_body is not None and not isinstance(from_body, str):
            raise BadRequest("conversation_id must be a string.")
        found = from_body or next(
            (headers[name] for name in self._headers if headers.get(name)), None
        )
        if found and len(found.encode("utf-8", "surrogateescape")) > MAX_ID_BYTES:
            raise BadRequest(f"The conversation id must have at most {MAX_ID_BYTES} bytes.")
        conversation_id = found or secrets.token_hex(16)
        owner = self._digest(headers.get("authorization", ""))
        key = self._digest(conversation_id, owner)
        return Conversation(conversation_id, key, owner, is_minted=not found)

    def _digest(self, text: str, prefix: bytes = b"") -> bytes:
        raw = prefix + text.encode("utf-8", "surrogateescape")
        return hashlib.blake2b(raw, key=self._secret, digest_size=16).digest()


def request_id(headers: Mapping[str, str]) -> str:
    """The client's request id if it is fit for logs and a header, else a new one."""
    given = headers.get("x-request-id", "")
    if 0 < len(given) <= _MAX_REQUEST_ID and given.isascii() and given.isprintable():
        return given
    return secrets.token_hex(16)


def must_run_alone(body: Mapping[str, Any]) -> bool:
    """Whether the transfer cannot serve this request.

    Either several sequences would share one handle, or the engine leaves its prefix cache or the
    transfer parameters out, or it cuts the prompt and shifts every position.
    """
    prompt = body.get("prompt")
    several = isinstance(prompt, list) and any(not isinstance(token, int) for token in prompt)
    return (
        body.get("n") not in (None, 1)
        or body.get("best_of") not in (None, 1)
        or bool(body.get("use_beam_search"))
        or bool(body.get("echo"))
        or several
        or any(
            body.get(key) is not None
            for key in ("prompt_logprobs", "truncate_prompt_tokens", "prompt_embeds")
        )
    )


def is_comparable(body: Mapping[str, Any]) -> bool:
    """Whether equal messages can mean equal tokens in this turn and the next.

    Not when D holds tokens that the answer does not show (hidden reasoning; end-of-sequence
    tokens that were passed over), nor when the prompt does not end where an answer begins: as a
    message of the history the answer gets a frame that it did not have.
    """
    return not (
        body.get("include_reasoning") is False
        or body.get("ignore_eos")
        or body.get("continue_final_message")
        or body.get("add_generation_prompt") is False
    )


def _object(raw: bytes) -> Json:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise BadRequest("The body is not valid JSON.") from None
    if not isinstance(body, dict):
        raise BadRequest("The body must be a JSON object.")
    return body


def _history(api: Api, body: Mapping[str, Any]) -> History | None:
    if api == "completions":
        prompt = body.get("prompt")
        return TextHistory(prompt) if isinstance(prompt, str) else None
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(item, dict) for item in messages):
        return None
    return None if has_media(messages) else ChatHistory(messages)
