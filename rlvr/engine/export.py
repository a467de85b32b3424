"""Models on disk in Hugging Face's format."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import save_torch_state_dict
from torch import Tensor

from rlvr.engine.parts import PartsFolder, SmallFile
from rlvr.world import World


def write_card(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write all of a model's folder but its weights: configuration, generation configuration, tokenizer."""
    model.config.architectures = [type(model).__name__]  # a model that was made here does not say
    model.config.save_pretrained(folder)
    if model.can_generate():
        model.generation_config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def card_files(model: Any, tokenizer: Any, name: str) -> list[SmallFile]:
    """What `write_card` writes, as files of the folder `name`."""
    with tempfile.TemporaryDirectory() as folder:
        write_card(model, tokenizer, Path(folder))
        paths = [path for path in sorted(Path(folder).rglob("*")) if path.is_file()]
        return [SmallFile(f"{name}/{path.relative_to(folder)}", path.read_bytes()) for path in paths]


def write_model(weights: Iterator[tuple[str, Tensor]], model: Any, tokenizer: Any, folder: Path, world: World) -> None:
    """Write a model that `transformers` and `vllm serve` load; the leading rank writes, every rank walks along.

    Args:
        weights: (name, tensor), gathered one by one.
        model: the Hugging Face model whose configuration is written.
    """
    held = {name: tensor.detach().cpu().clone() for name, tensor in weights if world.leader}
    if world.leader:
        folder.mkdir(parents=True, exist_ok=True)
        save_torch_state_dict(held, folder)
        write_card(model, tokenizer, folder)


def write_here(model: Any, tokenizer: Any, folder: Path) -> None:
    """As `write_model`, from this process alone.

    `save_pretrained` of a model writes nothing on ranks other than 0, and so nothing at all on other hosts than its.
    Of a weight's names the first stands for it: the embeddings', where the output head is tied to them.
    """
    names = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    others = names - {name for name, _ in model.named_parameters()}
    held = {name: tensor for name, tensor in model.state_dict().items() if name not in others}
    save_torch_state_dict(held, folder)
    write_card(model, tokenizer, folder)


def export_checkpoint(checkpoint: Path, folder: Path, dtype: torch.dtype) -> None:
    """Write the policy of a checkpoint as such a model; needs nothing but the checkpoint.

    Args:
        checkpoint: a complete one, written by any number of ranks.
        folder: does not exist yet.

    Raises:
        ConfigError: if its weights are missing or damaged.
    """
    with PartsFolder(checkpoint / "policy", "weights") as stored:
        held = dict(stored.whole(dtype))
    shutil.copytree(checkpoint / "model", folder)
    save_torch_state_dict(held, folder)
    path = folder / "config.json"
    told = json.loads(path.read_text(encoding="utf-8")) | {"dtype": str(dtype).removeprefix("torch.")}
    told.pop("torch_dtype", None)  # the older name of the same
    path.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
