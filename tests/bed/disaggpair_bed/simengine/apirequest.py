"""Bodies of `/v1/chat/completions` and `/v1/completions`: checked and turned into prompts.

What a chat says last can ask for an answer of a kind: "#call" or "#call NAME" for a call of one of
its tools, "#think 20" for so many tokens of thinking.

Refuses what vLLM refuses with 400 where a router's rewriting can run into it. Unknown fields are
accepted and ignored, as in vLLM.
"""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from disaggpair_bed.simengine import marks
from disaggpair_bed.simengine import tokens as vocabulary
from disaggpair_bed.simengine.apierrors import ApiError
from disaggpair_bed.simengine.identity import Adapter
from disaggpair_bed.simengine.job import Sampling
from disaggpair_bed.simengine.options import EngineOptions
from disaggpair_bed.simengine.template import TemplateError


@dataclass(frozen=True)
class Call:
    """A request that will be served."""

    chat: bool
    model: str
    prompts: tuple["array[int]", ...]
    sampling: Sampling
    n: int = 1
    stream: bool = False
    include_usage: bool = False
    echo: bool = False
    stop: tuple[str, ...] = ()
    keep_stop: bool = False
    logprobs: bool = False
    top_logprobs: int = 0
    prompt_logprobs: bool = False
    token_ids: bool = False
    """`return_token_ids`."""
    tool: str | None = None
    """Name of the function that must be called."""
    thinking: int | None = None
    """Tokens of thinking before the answer; None for what the model does."""
    salt: str = ""
    adapter: Adapter | None = None
    tenant: str = ""
    request_id: str | None = None
    params: dict[str, Any] | None = field(default=None)
    body: Mapping[str, Any] = field(default_factory=dict)


def parse(body: object, *, chat: bool, options: EngineOptions) -> Call:
    """Read a body.

    Raises:
        ApiError: 400 or 404, as vLLM answers.
    """
    if not isinstance(body, Mapping):
        raise ApiError(400, "the body must be a JSON object")
    model, adapter = known_model(body, options)
    params = _params(body)
    stream = bool(body.get("stream"))
    stream_options = body.get("stream_options")
    if stream_options is not None and not stream:
        raise ApiError(
            400, "Stream options can only be defined when `stream=True`.", param="stream_options"
        )
    prompts = _chat_prompts(body, params, options) if chat else _prompts(body)
    for prompt in prompts:
        if len(prompt) >= options.core.max_model_len:
            raise ApiError(
                400,
                f"This model's maximum context length is {options.core.max_model_len} tokens. "
                f"However, your request has {len(prompt)} input tokens.",
                param="input_tokens",
            )
    n = _integer(body, "n", 1)
    if n < 1:
        raise ApiError(400, f"n must be at least 1, got {n}.", param="n")
    if n > 1 and body.get("temperature") == 0:
        raise ApiError(400, f"n must be 1 when using greedy sampling, got {n}.")
    return Call(
        chat=chat,
        model=model,
        prompts=prompts,
        sampling=_sampling(body, chat, max(map(len, prompts)), options),
        n=n,
        stream=stream,
        include_usage=bool((stream_options or {}).get("include_usage")),
        echo=bool(body.get("echo")),
        stop=_stop(body),
        keep_stop=bool(body.get("include_stop_str_in_output")),
        logprobs=bool(body.get("logprobs")),
        top_logprobs=int(body.get("top_logprobs" if chat else "logprobs") or 0),
        prompt_logprobs=body.get("prompt_logprobs") is not None,
        token_ids=bool(body.get("return_token_ids")),
        tool=marks.tool(body) if chat else None,
        thinking=marks.thinking(body) if chat else None,
        salt=str(body.get("cache_salt") or ""),
        adapter=adapter,
        tenant=str(body.get("sim_tenant") or ""),
        request_id=body.get("request_id"),
        params=params or None,
        body=body,
    )


def known_model(body: Mapping[str, Any], options: EngineOptions) -> tuple[str, Adapter | None]:
    """The model that a body names, and the adapter that it is.

    Raises:
        ApiError: 404, there is none of that name.
    """
    model = str(body.get("model") or options.names[0])
    adapter = options.adapter(model)
    if model not in options.names and adapter is None:
        raise ApiError(404, f"The model `{model}` does not exist.", "NotFoundError", "model")
    return model, adapter


def _params(body: Mapping[str, Any]) -> dict[str, Any] | None:
    params = body.get("kv_transfer_params")
    if params is not None and not isinstance(params, dict):
        raise ApiError(
            400,
            "kv_transfer_params: Input should be a valid dictionary",
            param="kv_transfer_params",
        )
    return params


def _integer(body: Mapping[str, Any], key: str, default: int) -> int:
    value = body.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise ApiError(400, f"{key}: Input should be a valid integer", param=key)
    return value


def _sampling(
    body: Mapping[str, Any], chat: bool, prompt_tokens: int, options: EngineOptions
) -> Sampling:
    room = options.core.max_model_len - prompt_tokens
    limit = _integer(body, "max_tokens", room if chat else 16)
    if chat:
        limit = _integer(body, "max_completion_tokens", limit)
    if limit < 1:
        raise ApiError(400, f"max_tokens must be at least 1, got {limit}.", param="max_tokens")
    shortest = _integer(body, "min_tokens", 0)
    if shortest < 0:
        raise ApiError(400, f"min_tokens must be greater than or equal to 0, got {shortest}.")
    if shortest > limit:
        raise ApiError(
            400, f"min_tokens must be less than or equal to max_tokens={limit}, got {shortest}."
        )
    stop_ids = body.get("stop_token_ids") or ()
    return Sampling(
        max_tokens=min(limit, room),
        min_tokens=shortest,
        ignore_eos=bool(body.get("ignore_eos")),
        stop_token_ids=frozenset(stop_ids),
    )


def _stop(body: Mapping[str, Any]) -> tuple[str, ...]:
    stop = body.get("stop") or ()
    return (stop,) if isinstance(stop, str) else tuple(map(str, stop))


def _chat_prompts(
    body: Mapping[str, Any], params: dict[str, Any] | None, options: EngineOptions
) -> tuple["array[int]", ...]:
    if options.release.takes_prompt_token_ids and params:
        given = params.pop("prompt_token_ids", None)
        if given is not None and not body.get("echo"):
            return (token_ids(given, "kv_transfer_params.prompt_token_ids"),)
    return (_truncated(rendered(body, options), body),)


def rendered(body: Mapping[str, Any], options: EngineOptions) -> "array[int]":
    """The prompt of a chat.

    Raises:
        ApiError: 400, it cannot be rendered.
    """
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise ApiError(400, "messages: Field required", param="messages")
    try:
        return options.template.render(
            messages,
            body,
            add_generation_prompt=body.get("add_generation_prompt", True),
            continue_final_message=body.get("continue_final_message", False),
        )
    except TemplateError as error:
        raise ApiError(400, str(error), param="messages") from None


def _truncated(prompt: "array[int]", body: Mapping[str, Any]) -> "array[int]":
    limit = _integer(body, "truncate_prompt_tokens", 0)
    return prompt[-limit:] if limit > 0 else prompt


def token_ids(value: object, name: str) -> "array[int]":
    """A list of tokens from outside.

    Raises:
        ApiError: 400, it is none.
    """
    if not isinstance(value, list) or not value or not all(map(vocabulary.is_token, value)):
        raise ApiError(400, f"{name}: Input should be a list of token ids", param=name)
    return array("Q", value)


def _prompts(body: Mapping[str, Any]) -> tuple["array[int]", ...]:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        return tuple(_prompt(one, body) for one in prompt)
    return (_prompt(prompt, body),)


def _prompt(prompt: object, body: Mapping[str, Any]) -> "array[int]":
    if isinstance(prompt, str) and prompt:
        start = (vocabulary.BEGIN,) if body.get("add_special_tokens", True) else ()
        return _truncated(array("Q", start) + vocabulary.encode(prompt), body)
    return token_ids(prompt, "prompt")
