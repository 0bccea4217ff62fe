"""A model folder of Qwen3-32B's shape for `--load-format dummy`: no weights.

Its tokens are words of three letters, so that a text has four characters for each token, and its
chat template puts one token before each message.
"""

import importlib
import json
import string
import sys
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path
from typing import Final

VOCABULARY: Final = 151_936
LAYERS: Final = 64
MESSAGE_TOKENS: Final = 2
"""What a user's message has besides its words: the mark before it and that of the answer."""
_LETTERS: Final = string.ascii_letters + string.digits + "-_"
_LONG: Final = 3
"""Number of a word that nobody says: vLLM refuses a text with more characters than a prompt of the
longest words could have."""
_TEMPLATE: Final = (
    "{% for m in messages %}{{ 'aaf' if m['role'] == 'user' else 'aag' }} {{ m['content'] }} "
    "{% endfor %}{% if add_generation_prompt %}aag {% endif %}"
)


def vocabulary() -> Iterator[str]:
    """The words, by their number; 1 and 2 are special and 5 and 6 the marks of messages."""
    return islice(map("".join, product(_LETTERS, repeat=3)), VOCABULARY)


def write(folder: Path, layers: int = LAYERS) -> None:
    tokenizers = importlib.import_module("tokenizers")
    transformers = importlib.import_module("transformers")
    folder.mkdir(parents=True, exist_ok=True)
    words = {word: number for number, word in enumerate(vocabulary())}
    words = {word if number != _LONG else word * 8: number for word, number in words.items()}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="aaa"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="aab", pad_token="aac"
    )
    made.chat_template = _TEMPLATE
    made.save_pretrained(folder)
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": 5120,
        "intermediate_size": 25600,
        "num_hidden_layers": layers,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 40960,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "hidden_act": "silu",
        "attention_bias": False,
        "bos_token_id": 1,
        "eos_token_id": 1,
    }
    (folder / "config.json").write_text(json.dumps(config))


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else LAYERS)
