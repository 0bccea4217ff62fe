"""Runs bodies of the APIs on vLLM's own protocol classes; see `replay` for how.

    python replayapis.py < cases.json > results.json

A case with `route` is a body, and its result says what vLLM makes of it; a case with `shape` is
an answer or an event of the simulation, and its result names the fields that vLLM's class lacks.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any, get_args

Json = dict[str, Any]


def responses(body: Json) -> Json:
    """A body of /v1/responses as a chat."""
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
    from vllm.entrypoints.openai.responses.utils import construct_input_messages

    request = ResponsesRequest.model_validate(body)
    sampling = request.to_sampling_params(1000, {})
    messages = construct_input_messages(
        request_instructions=request.instructions, request_input=request.input
    )
    return {
        "messages": _plain(messages),
        "limit": sampling.max_tokens,
        "params": (sampling.extra_args or {}).get("kv_transfer_params"),
        "stream": bool(request.stream),
    }


def messages(body: Json) -> Json:
    """A body of /v1/messages as a chat."""
    from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
    from vllm.entrypoints.anthropic.serving import AnthropicServingMessages

    request = AnthropicMessagesRequest.model_validate(body)
    chat = AnthropicServingMessages.to_chat_completion_request(request)
    choice = chat.tool_choice
    return {
        "messages": _plain(chat.messages),
        "limit": chat.max_completion_tokens,
        "params": chat.kv_transfer_params,
        "stream": bool(chat.stream),
        "usage": bool(chat.stream_options and chat.stream_options.include_usage),
        "stop": chat.stop or [],
        "tools": [tool.function.name for tool in chat.tools or []],
        "choice": choice if isinstance(choice, str | None) else choice.function.name,
    }


def _plain(value: Any) -> Any:
    """Values of JSON, with the iterators of pydantic spent."""
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return [_plain(item) for item in value]


def shape(case: Json) -> Json:
    """Fields of a value that the class has no place for."""
    from vllm.entrypoints.anthropic import protocol as anthropic
    from vllm.entrypoints.openai.responses import protocol as openai

    classes: Json = {
        "response": openai.ResponsesResponse,
        "message": anthropic.AnthropicMessagesResponse,
        "message event": anthropic.AnthropicStreamEvent,
    }
    given = case["value"]
    found = classes.get(case["shape"]) or _event_class(openai, given["type"])
    value = found.model_validate(given)
    fields = {field.alias or name for name, field in type(value).model_fields.items()}
    return {"unknown": sorted(set(given) - fields)}


def _event_class(protocol: Any, kind: str) -> Any:
    """The class of a response's event: vLLM's own, else that of the package it takes them from."""
    from openai.types import responses as package

    for module in (protocol, package):
        for found in vars(module).values():
            field = getattr(found, "model_fields", {}).get("type")
            if field is not None and get_args(field.annotation) == (kind,):
                return found
    raise ValueError(f"no event is a {kind}")


def run(case: Json) -> Json:
    """One case; what vLLM refuses has a result, too."""
    try:
        if "shape" in case:
            return {"accepted": True, **shape(case)}
        routes = {"responses": responses, "messages": messages}
        return {"accepted": True, **routes[case["route"]](case["body"])}
    except ValueError as error:  # pydantic's errors, vLLM's own
        return {"accepted": False, "error": str(error)[:500]}


def main() -> None:
    """Run all cases; vLLM's own output goes to standard error."""
    cases = json.load(sys.stdin)
    answers, sys.stdout = sys.stdout, sys.stderr
    json.dump([run(case) for case in cases], answers)


if __name__ == "__main__":
    main()
