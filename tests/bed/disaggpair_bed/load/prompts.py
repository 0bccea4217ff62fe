"""Bodies of turns: chats of a given size, each with a number of its own at a known place."""

from dataclasses import dataclass

import orjson

_MARK = b"#000000000000#"
_MESSAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Prompt:
    """A body in two halves; the number of the turn stands between them."""

    before: bytes
    after: bytes

    def body(self, number: int) -> bytes:
        """The body of a turn; every one has the same length."""
        return b"%s%012d%s" % (self.before, number, self.after)


def chat(size: int, *, stream: bool, **fields: object) -> Prompt:
    """A chat of about `size` bytes in messages of 4 KB, the last one of the user."""
    count = max(1, size // _MESSAGE_BYTES)
    count += count % 2 == 0
    text = "lorem ipsum dolor sit amet, " * (size // count // 28 + 1)
    messages = [
        {"role": "assistant" if number % 2 else "user", "content": text[: size // count]}
        for number in range(count)
    ]
    messages[0]["content"] = _MARK.decode() + messages[0]["content"]
    body = {"model": "toy", "messages": messages, "max_tokens": 64, "stream": stream, **fields}
    before, _, after = orjson.dumps(body).partition(_MARK)
    return Prompt(before + b"#", b"#" + after)


def leg(prompt: Prompt, *, prefill: bool) -> Prompt:
    """The body of a leg sent without a router; a D leg lacks P's parameters, which come first."""
    if not prefill:
        return prompt
    first = (
        b'{"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false},'
        b'"max_tokens":1,"stream":false,"model"'
    )
    after = prompt.after.replace(b',"max_tokens":64', b"").replace(b',"stream":true', b"")
    return Prompt(
        prompt.before.replace(b'{"model"', first, 1), after.replace(b',"stream":false', b"")
    )


def with_params(body: bytes, params: bytes) -> bytes:
    """A D leg's body with P's parameters as the first member."""
    return b'{"kv_transfer_params":' + params + b"," + body[1:]
