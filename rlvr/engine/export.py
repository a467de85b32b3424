"""Weights on disk in Hugging Face's format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from huggingface_hub import save_torch_state_dict
from torch import Tensor

from rlvr.world import World


def write_weights(weights: Iterator[tuple[str, Tensor]], folder: Path, world: World) -> None:
    """Write whole weights as safetensors, from the leading rank; every rank walks along.

    Args:
        weights: (name, tensor), gathered one by one.
        folder: where `model.safetensors`, or its shards and their index, are put.
    """
    held = {name: tensor.detach().cpu().clone() for name, tensor in weights if world.leader}
    if world.leader:
        folder.mkdir(parents=True, exist_ok=True)
        save_torch_state_dict(held, folder)


def write_model(weights: Iterator[tuple[str, Tensor]], model: Any, tokenizer: Any, folder: Path, world: World) -> None:
    """Write a model that `transformers` and `vllm serve` load: weights, configuration, tokenizer.

    Args:
        model: the Hugging Face model whose configuration is written.
    """
    write_weights(weights, folder, world)
    if world.leader:
        model.config.save_pretrained(folder)
        if model.can_generate():
            model.generation_config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
