"""A model folder of Qwen3-32B's shape for `--load-format dummy`: no weights."""

import importlib
import json
import sys
from pathlib import Path
from typing import Final

VOCABULARY: Final = 151_936
LAYERS: Final = 64


def write(folder: Path, layers: int = LAYERS) -> None:
    tokenizers = importlib.import_module("tokenizers")
    transformers = importlib.import_module("transformers")
    folder.mkdir(parents=True, exist_ok=True)
    words = {f"t{number}": number for number in range(VOCABULARY)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="t0"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="t1", pad_token="t2"
    ).save_pretrained(folder)
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
