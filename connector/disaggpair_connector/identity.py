"""What of a request changes its KV besides the token ids. Reads vLLM's Request by attribute.

Checked in vLLM 0.31.0 to 0.33.0, where the same attributes enter the hashes of the prefix cache.
"""

from typing import Any

from disaggpair_connector.digest import Media


def is_comparable(request: Any) -> bool:
    """Whether the token ids say what the prompt is; embeddings given as such have none."""
    return request.prompt_token_ids is not None and getattr(request, "prompt_embeds", None) is None


def identity_of(request: Any) -> bytes:
    """The adapter and the cache salt, in an encoding in which two never read the same."""
    lora = request.lora_request
    parts = [
        lora.lora_name if lora else "",
        getattr(lora, "lora_path", "") if lora else "",
        request.cache_salt or "",
    ]
    encoded = [str(part).encode() for part in parts]
    return b"".join(len(part).to_bytes(4, "big") + part for part in encoded)


def media_of(request: Any) -> tuple[Media, ...]:
    """Images and the like: where their placeholders start, and what they are."""
    return tuple(
        Media(feature.mm_position.offset, str(feature.identifier).encode())
        for feature in request.mm_features
    )
