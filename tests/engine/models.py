"""Small random models for tests of the engines."""

import dataclasses
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from rlvr.schema.hardware import HardwareConfig
from rlvr.schema.model import ModelConfig

ONE_ULP = 2**-23  # of weights near 1: how exactly what an update adds to them can be told from the sum

SHAPE = dict(
    vocab_size=64,
    hidden_size=128,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,  # the smallest that the CPU build of vLLM supports
    max_position_embeddings=128,
    pad_token_id=0,
    eos_token_id=1,
    bos_token_id=None,
)
FAMILIES = {
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    "llama": (LlamaConfig, LlamaForCausalLM),
}
MODEL = ModelConfig(name="test", kind="hub", path="", chat="text", trust_remote_code=False)
HARDWARE = HardwareConfig(
    device="cpu",
    ranks=1,
    threads=1,
    dtype="fp32",
    zero=0,
    offload_optimizer=False,
    offload_parameters=False,
    gradient_checkpointing=False,
    attention="packed",
    share_prompts=False,
    tokens_per_micro_batch=1000,
    head_chunk=16,
    tensor_parallel=1,
    sampler_memory=1,
    sampler_sequences=64,
    sampler_eager=True,
    sampler_sleep=False,
    timeout=60.0,
    mismatch_bound=1e-4,
    peak_tflops=None,
)


def hardware(**changes: object) -> HardwareConfig:
    """A CPU section with some keys changed."""
    return dataclasses.replace(HARDWARE, **changes)  # type: ignore[arg-type]


def saved(folder: Path, family: str, tied: bool, seed: int = 0) -> str:
    """A random model on disk; its weights are large enough for its log-probs to differ visibly."""
    torch.manual_seed(seed)
    config_class, model_class = FAMILIES[family]
    model = model_class(config_class(**SHAPE, tie_word_embeddings=tied))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return str(folder)
