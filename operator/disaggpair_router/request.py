"""One request, read and bounded: what the client asked for, without what it may not ask for.

Called by `app` with the raw body; the result is what `turn` runs. No HTTP here.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from disaggpair_router.apis.shape import Shape
from disaggpair_router.apis.table import SHAPES
from disaggpair_router.conversation import Conversation, Keys, conversation_of
from disaggpair_router.door import Caller
from disaggpair_router.errors import BadRequest
from disaggpair_router.history import History, scope_digest
from disaggpair_router.ids import new_id
from disaggpair_router.kv import Api, Json, without_transfer_keys
from disaggpair_router.structure import check_fields
from disaggpair_router.way.choice import Way

PATHS: Final[Mapping[Api, str]] = {api: shape.path for api, shape in SHAPES.items()}
TOO_DEEP: Final = "The body is nested too deeply."
_REQUEST_ID: Final = re.compile(r"[!-~]{1,128}")
_FORWARDED: Final = ("x-vllm-priority", "traceparent", "tracestate")
"""Request headers that reach the engines besides the credentials. A rank or request id of the
client's would not fit."""
_ANYBODY: Final = Caller()


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
    tenant: str = ""
    """Whose turn it is; empty where there are no tenants."""
    forced: Way | None = None
    """The way that this turn was asked to take."""

    @property
    def shape(self) -> Shape:
        """What is particular to its API."""
        return SHAPES[self.api]

    @property
    def path(self) -> str:
        """Path of the route, the same at the engines."""
        return self.shape.path

    def is_told(self, *, handle_in_stream: bool) -> bool:
        """Whether the answer tells of D's handle; `handle_in_stream` is the engines' release's."""
        told = self.shape.tells_in_stream
        return not self.stream or (handle_in_stream if told is None else told)

    @property
    def has_stop(self) -> bool:
        """Whether the answer may end at a stop string."""
        return bool(self.body.get("stop") or self.body.get("stop_sequences"))

    @property
    def model(self) -> str:
        """The model name as sent, for the release request."""
        return str(self.body.get("model") or "")


class RequestReader:
    """Reads requests; holds what does not change between them.

    `finds_untold` says that what D holds is found also when its answer does not tell of it.
    """

    def __init__(
        self,
        conversation_headers: Sequence[str],
        *,
        keys: Keys,
        bidirectional: bool,
        verified_reads: bool = False,
        finds_untold: bool = False,
        way_header: str = "",
    ) -> None:
        self._names = conversation_headers
        self._keys = keys
        self._bidirectional = bidirectional
        self._verified_reads = verified_reads
        self._finds_untold = finds_untold
        self._way_header = way_header

    def read(
        self,
        api: Api,
        raw: bytes,
        headers: Mapping[str, str],
        given_id: str,
        caller: Caller = _ANYBODY,
    ) -> TurnRequest:
        """The request, or BadRequest. `headers` is looked up without regard to case."""
        try:
            return self._read(api, raw, headers, given_id, caller)
        except (orjson.JSONEncodeError, RecursionError):
            raise BadRequest(TOO_DEEP) from None

    def _read(
        self, api: Api, raw: bytes, headers: Mapping[str, str], given_id: str, caller: Caller
    ) -> TurnRequest:
        shape = SHAPES[api]
        body = shape.edited(edited_body(raw))
        conversation = conversation_of(
            body.pop("conversation_id", None),
            headers,
            self._names,
            owner=caller.owner,
            keys=self._keys,
            mint=new_id,
        )
        stream = body.get("stream")
        if stream is not None and not isinstance(stream, bool):
            raise BadRequest("stream must be true or false.")
        options = body.get("stream_options")
        alone = must_run_alone(body) or shape.must_run_alone(body) or self._loses(shape, stream)
        comparable = is_comparable(body) and shape.is_comparable(body)
        reusable = self._verified_reads or comparable
        usable = self._bidirectional and reusable and not alone
        history = shape.history(body, verified=self._verified_reads) if usable else None
        return TurnRequest(
            api=api,
            body=body,
            stream=bool(stream),
            include_usage=isinstance(options, dict) and options.get("include_usage") is True,
            conversation=conversation,
            history=history,
            scope=scope_digest(api, body, beside=shape.not_in_scope) if history else b"",
            alone=alone,
            request_id=given_id,
            headers={**_forwarded(headers), **caller.credentials},
            tenant=caller.tenant,
            forced=self._forced(headers),
        )

    def _loses(self, shape: Shape, stream: object) -> bool:
        """Whether D would keep blocks that nobody could find."""
        tells = not stream or shape.tells_in_stream is not False
        return self._bidirectional and not tells and not self._finds_untold

    def _forced(self, headers: Mapping[str, str]) -> Way | None:
        given = headers.get(self._way_header, "") if self._way_header else ""
        if not given:
            return None
        found = _WAYS.get(given.lower())
        if found is None:
            raise BadRequest(f"{self._way_header} must be {', '.join(_WAYS)}.")
        return found


_WAYS: Final[Mapping[str, Way]] = {"full": "FULL", "pull": "PULL", "direct": "DIRECT"}


def request_id(headers: Mapping[str, str]) -> str:
    """The client's request id if it is fit for logs and a header, else a new one.

    Fit are 1 to 128 visible ASCII characters: with a blank in it, an id could look like more
    fields of a turn's line.
    """
    given = headers.get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else new_id()


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


def json_object(raw: bytes) -> Json:
    """A body as a JSON object, or BadRequest."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise BadRequest("The body is not valid JSON.") from None
    if not isinstance(body, dict):
        raise BadRequest("The body must be a JSON object.")
    check_fields(body)
    return body


def edited_body(raw: bytes) -> Json:
    """A client's body without transfer parameters, or BadRequest."""
    try:
        return without_transfer_keys(json_object(raw))
    except RecursionError:
        raise BadRequest(TOO_DEEP) from None


def _forwarded(headers: Mapping[str, str]) -> dict[str, str]:
    found = {name: headers[name] for name in _FORWARDED if name in headers}
    # The others could not be sent on as they came.
    return {name: value for name, value in found.items() if value.isascii() and value.isprintable()}
