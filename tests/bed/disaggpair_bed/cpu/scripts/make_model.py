"""Write a small Llama with random weights and a tokenizer of single bytes: FOLDER MAX_TOKENS.

Run by the interpreter of the engines.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

HIDDEN, INTERMEDIATE, LAYERS, HEADS, KV_HEADS, HEAD_SIZE = 256, 512, 4, 4, 2, 64
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"]
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer() -> PreTrainedTokenizerFast:
    """One token for each byte, and the four special ones."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*SPECIAL, *alphabet])}
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(SPECIAL)
    made = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<|im_end|>", pad_token="<|pad|>", bos_token=None
    )
    made.chat_template = CHAT_TEMPLATE
    return made


def config(vocabulary: int, eos: int, max_tokens: int) -> dict[str, object]:
    """The model's config.json."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_SIZE,
        "vocab_size": vocabulary,
        "max_position_embeddings": max_tokens,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": None,
        "eos_token_id": eos,
        "hidden_act": "silu",
    }


def printable(vocabulary: dict[str, int]) -> list[int]:
    """Tokens of printable ASCII without the sign that begins a special token."""
    return [vocabulary[chr(code)] for code in range(ord("!"), ord("~") + 1) if chr(code) != "<"]


def weights(vocabulary: int, spoken: list[int]) -> dict[str, torch.Tensor]:
    """All tensors, of a size that keeps the logits of different contexts well apart.

    Only the tokens `spoken` can have a logit above zero, so that a greedy answer, sent back as
    text, becomes the same tokens again.
    """
    generator = torch.Generator().manual_seed(0)

    def drawn(rows: int, columns: int, deviation: float) -> torch.Tensor:
        return (torch.randn(rows, columns, generator=generator) * deviation).to(torch.bfloat16)

    def ones() -> torch.Tensor:
        return torch.ones(HIDDEN, dtype=torch.bfloat16)

    fan_in = HIDDEN**-0.5
    queries, keys = HEADS * HEAD_SIZE, KV_HEADS * HEAD_SIZE
    made = {"model.embed_tokens.weight": drawn(vocabulary, HIDDEN, 1.0)}
    for layer in range(LAYERS):
        of_layer = {
            "self_attn.q_proj": drawn(queries, HIDDEN, fan_in * 1.5),
            "self_attn.k_proj": drawn(keys, HIDDEN, fan_in * 1.5),
            "self_attn.v_proj": drawn(keys, HIDDEN, fan_in),
            "self_attn.o_proj": drawn(HIDDEN, queries, queries**-0.5),
            "mlp.gate_proj": drawn(INTERMEDIATE, HIDDEN, fan_in),
            "mlp.up_proj": drawn(INTERMEDIATE, HIDDEN, fan_in),
            "mlp.down_proj": drawn(HIDDEN, INTERMEDIATE, INTERMEDIATE**-0.5),
            "input_layernorm": ones(),
            "post_attention_layernorm": ones(),
        }
        made |= {f"model.layers.{layer}.{name}.weight": part for name, part in of_layer.items()}
    made["model.norm.weight"] = ones()
    head = drawn(vocabulary, HIDDEN, fan_in * 3)
    kept = torch.zeros(vocabulary, 1, dtype=torch.bfloat16)
    kept[spoken] = 1
    made["lm_head.weight"] = head * kept
    return made


def main(folder: Path, max_tokens: int) -> None:
    """Write the model."""
    folder.mkdir(parents=True)
    made = tokenizer()
    made.save_pretrained(folder)
    settings = config(len(made), made.eos_token_id, max_tokens)
    (folder / "config.json").write_text(json.dumps(settings, indent=2))
    tensors = weights(len(made), printable(made.get_vocab()))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
