"""Shapes of models: from their config.json where it is on this machine, else from a table of public ones."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr.keys import ConfigError
from rlvr.schema.model import ModelConfig, TinyConfig

TINY_WORDS = 99  # of the character tokenizer: <pad> <eos> <unk>, 95 printable characters, a new line
KINDS = ("llama", "mistral", "qwen2", "qwen3")  # values of model_type whose layers are those of `Shape`


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A decoder of RMS norms, grouped-query attention and a gated MLP.

    Letters below: V words   D width   F width of the MLP   A = heads x head_dim   K = kv_heads x head_dim
    """

    layers: int
    width: int  # D
    mlp: int  # F
    heads: int
    kv_heads: int
    head_dim: int
    words: int  # V
    tied: bool = False  # the output head is the embedding
    qkv_bias: bool = False
    qk_norm: bool = False  # a norm over each head of queries and keys

    @property
    def queries(self) -> int:
        """A, numbers of a token's queries."""
        return self.heads * self.head_dim

    @property
    def keys(self) -> int:
        """K, numbers of a token's keys, and of its values."""
        return self.kv_heads * self.head_dim

    @property
    def layer_matrices(self) -> int:
        """Weights of one layer that tokens are multiplied by: q and o DA each, k and v DK each, gate, up, down DF."""
        return 2 * self.width * self.queries + 2 * self.width * self.keys + 3 * self.width * self.mlp

    @property
    def body(self) -> int:
        """Weights of all layers that tokens are multiplied by."""
        return self.layers * self.layer_matrices

    @property
    def head(self) -> int:
        """V D, weights of the output head, and of the embedding."""
        return self.words * self.width

    @property
    def parameters(self) -> int:
        """All of them: matrices, 2D of norms per layer, biases, one last norm, embedding, and a head of its own."""
        biases = self.queries + 2 * self.keys if self.qkv_bias else 0
        head_norms = 2 * self.head_dim if self.qk_norm else 0
        small = self.layers * (2 * self.width + biases + head_norms) + self.width
        return self.body + small + self.head * (1 if self.tied else 2)

    @property
    def critic_parameters(self) -> int:
        """The same decoder with one number per token, with its bias, in place of words."""
        return self.parameters - (0 if self.tied else self.head) + self.width + 1

    @property
    def tensors(self) -> int:
        """Named parameters: 9 per layer with what is optional, embedding, last norm, head."""
        return self.layers * (9 + 3 * self.qkv_bias + 2 * self.qk_norm) + (2 if self.tied else 3)

    @property
    def cached(self) -> int:
        """Numbers that the KV cache holds per token: keys and values of all layers."""
        return 2 * self.layers * self.keys


def _qwen2(layers: int, width: int, mlp: int, heads: int, kv_heads: int, words: int, tied: bool) -> Shape:
    return Shape(
        layers=layers,
        width=width,
        mlp=mlp,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=width // heads,
        words=words,
        tied=tied,
        qkv_bias=True,
    )


# From the config.json of each model at huggingface.co.
KNOWN = {
    "Qwen/Qwen2.5-0.5B": _qwen2(24, 896, 4864, 14, 2, 151_936, True),
    "Qwen/Qwen2.5-1.5B": _qwen2(28, 1536, 8960, 12, 2, 151_936, True),
    "Qwen/Qwen2.5-3B": _qwen2(36, 2048, 11_008, 16, 2, 151_936, True),
    "Qwen/Qwen2.5-7B": _qwen2(28, 3584, 18_944, 28, 4, 152_064, False),
    "Qwen/Qwen2.5-14B": _qwen2(48, 5120, 13_824, 40, 8, 152_064, False),
    "Qwen/Qwen2.5-32B": _qwen2(64, 5120, 27_648, 40, 8, 152_064, False),
    "Qwen/Qwen2.5-Math-7B": _qwen2(28, 3584, 18_944, 28, 4, 152_064, False),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": _qwen2(28, 1536, 8960, 12, 2, 151_936, False),
    "Qwen/Qwen3-8B-Base": Shape(
        layers=36, width=4096, mlp=12_288, heads=32, kv_heads=8, head_dim=128, words=151_936, qk_norm=True
    ),
    "meta-llama/Llama-3.1-70B": Shape(
        layers=80, width=8192, mlp=28_672, heads=64, kv_heads=8, head_dim=128, words=128_256
    ),
    "HuggingFaceTB/SmolLM2-135M-Instruct": Shape(
        layers=30, width=576, mlp=1536, heads=9, kv_heads=3, head_dim=64, words=49_152, tied=True
    ),
}
KNOWN |= {f"{name}-Instruct": KNOWN[name] for name in list(KNOWN) if name.startswith(("Qwen/Qwen2.5-", "meta-llama/"))}
KNOWN["Qwen/Qwen3-8B"] = KNOWN["Qwen/Qwen3-8B-Base"]


def shape_of(model: ModelConfig) -> Shape:
    """The shape of the model that a run would load.

    Raises:
        ConfigError: if its config.json is not here and no table has it, or if its layers are of another kind.
    """
    if isinstance(model, TinyConfig):
        return _tiny(model)
    if model.kind == "smollm2":
        return KNOWN["HuggingFaceTB/SmolLM2-135M-Instruct"]
    if not model.path:
        raise ConfigError("model.path is not set: give a Hugging Face name or a folder")
    file = _config_file(model.path)
    if file is not None:
        return of_config(json.loads(file.read_text(encoding="utf-8")), f"model.path={model.path}")
    if model.path in KNOWN:
        return KNOWN[model.path]
    raise ConfigError(
        f"model.path={model.path}: its config.json is neither in a folder of that name nor in the hub's cache, and its "
        f"shape is not known; download it (hf download {model.path} config.json), or give one of {', '.join(KNOWN)}"
    )


def _tiny(model: TinyConfig) -> Shape:
    return Shape(
        layers=model.layers,
        width=model.hidden,
        mlp=3 * model.hidden,
        heads=model.heads,
        kv_heads=model.heads,
        head_dim=model.hidden // model.heads,
        words=TINY_WORDS,
        qkv_bias=True,
    )


def _config_file(path: str) -> Path | None:
    """The config.json of a folder, or of a model in the hub's cache."""
    folder = Path(path).expanduser()
    if folder.is_dir():
        file = folder / "config.json"
        if not file.is_file():
            raise ConfigError(f"model.path={path}: the folder has no config.json")
        return file
    if path.count("/") != 1:
        return None
    from huggingface_hub import try_to_load_from_cache  # half a second, for those alone who need it

    found = try_to_load_from_cache(path, "config.json")
    return Path(found) if isinstance(found, str) else None


def of_config(told: dict[str, Any], where: str) -> Shape:
    """The shape that a config.json tells of.

    Args:
        told: the file's content.
        where: names the model in refusals.

    Raises:
        ConfigError: if its model_type is none of `KINDS`, or a number is missing.
    """
    kind = told.get("model_type")
    if kind not in KINDS:
        raise ConfigError(
            f"{where}: rlvr plan does not know the layers of model_type={kind}, only those of {', '.join(KINDS)}"
        )
    try:
        width, heads = told["hidden_size"], told["num_attention_heads"]
        return Shape(
            layers=told["num_hidden_layers"],
            width=width,
            mlp=told["intermediate_size"],
            heads=heads,
            kv_heads=told.get("num_key_value_heads") or heads,
            head_dim=told.get("head_dim") or width // heads,
            words=told["vocab_size"],
            tied=told.get("tie_word_embeddings", False),
            qkv_bias=kind == "qwen2",
            qk_norm=kind == "qwen3",
        )
    except KeyError as error:
        raise ConfigError(f"{where}: its config.json does not give {error.args[0]}") from None
