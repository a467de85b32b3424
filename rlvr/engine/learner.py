"""The learner: a language model under DeepSpeed, its optimizer, and its weights as a stream."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deepspeed
from deepspeed.runtime.zero import GatheredParameters
from torch import Tensor, nn
from torch.nn.utils import get_total_norm
from transformers.integrations import HfDeepSpeedConfig

from rlvr.engine.models import Backbone, LanguageModel
from rlvr.engine.scorer import Scorer
from rlvr.schema.hardware import HardwareConfig
from rlvr.schema.model import ModelConfig
from rlvr.schema.train import OptimConfig
from rlvr.world import World

# At its first start on a CPU DeepSpeed would compile a shared-memory all-reduce: a compiler and half a minute.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


class Learner(Scorer):
    """A trained model: forward and backward on micro-batches, one optimizer step per `update`."""

    def __init__(
        self,
        folder: str,
        model: ModelConfig,
        hardware: HardwareConfig,
        optim: OptimConfig,
        world: World,
        temperature: float,
        kind: type[Backbone] = LanguageModel,
    ) -> None:
        settings = deepspeed_settings(hardware, optim)
        self.model = load_sharded(kind, folder, model, hardware, settings)
        groups = _decay_groups(self.model, optim)
        self.engine, *_ = deepspeed.initialize(model=self.model, model_parameters=groups, config=settings)
        self._norm_is_ours = hardware.zero == 0 and hardware.dtype == "fp32"  # DeepSpeed reports none there
        super().__init__(self.engine, world, hardware.tokens_per_micro_batch, temperature)

    def backward(self, loss: Tensor, last: bool) -> None:
        """Add a micro-batch's gradient; `last` closes the update, which lets ZeRO reduce once where it can.

        ZeRO averages over ranks, while losses are parts of one global mean: hence the factor.
        """
        self.engine.set_gradient_accumulation_boundary(last)
        self.engine.backward(loss * self.world.size)

    def update(self, lr: float) -> float:
        """Step the optimizer; returns the global gradient norm before clipping.

        Raises:
            FloatingPointError: if that norm is not finite; the weights are then not to be used.
        """
        for group in self.engine.optimizer.param_groups:
            group["lr"] = lr
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None] if self._norm_is_ours else []
        own = get_total_norm(gradients)
        self.engine.step()
        norm = float(own if self._norm_is_ours else self.engine.get_global_grad_norm())
        if not math.isfinite(norm):
            raise FloatingPointError(f"the gradient norm is {norm}")
        return norm

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """(name in Hugging Face's model, whole tensor) one by one; under ZeRO-3 every rank must walk along."""
        yield from whole_weights(self.model)

    def reset_optimizer(self) -> None:
        """Forget the moments of AdamW; weights and learning rate stay."""
        for state in self.engine.basic_optimizer.state.values():
            for value in state.values():
                if isinstance(value, Tensor):
                    value.zero_()

    def save(self, folder: Path) -> None:
        """Weights and optimizer state, as DeepSpeed writes them: each rank its shard."""
        self.engine.save_checkpoint(str(folder), tag="state")

    def load(self, folder: Path) -> None:
        """The inverse of `save`, on the same number of ranks.

        Raises:
            RuntimeError: if a part is missing.
        """
        path, _ = self.engine.load_checkpoint(str(folder), tag="state")
        if path is None:
            raise RuntimeError(f"{folder}: the learner's state is missing or incomplete")


def load_sharded(
    kind: type[Backbone], folder: str, model: ModelConfig, hardware: HardwareConfig, settings: dict[str, Any]
) -> Backbone:
    """Load a model; with ZeRO-3 no rank ever holds all of it."""
    alive = HfDeepSpeedConfig(settings) if hardware.zero == 3 else None
    module = kind(folder, model, hardware)
    del alive  # transformers watches a weak reference: it must live until the weights are loaded
    return module


def whole_weights(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The parameters of a `Backbone` under Hugging Face's names, each gathered only while it is used."""
    for name, parameter in module.named_parameters():
        with GatheredParameters([parameter], enabled=hasattr(parameter, "ds_id")):
            yield name.removeprefix("hf."), parameter.data


def deepspeed_settings(hardware: HardwareConfig, optim: OptimConfig | None) -> dict[str, Any]:
    """DeepSpeed's configuration from ours; without `optim`, that of a frozen model."""
    zero: dict[str, Any] = {"stage": hardware.zero}
    if hardware.offload_optimizer and optim:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": hardware.device == "cuda"}
    if hardware.offload_parameters:
        zero["offload_param"] = {"device": "cpu", "pin_memory": hardware.device == "cuda"}
    settings: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,  # micro-batches are ours: the boundary is set by hand
        "bf16": {"enabled": hardware.dtype == "bf16"},
        "zero_optimization": zero,
        "steps_per_print": 10**12,
        "zero_force_ds_cpu_optimizer": False,
    }
    if optim:
        settings["gradient_clipping"] = optim.clip_grad
        settings["optimizer"] = {
            "type": "AdamW",
            "params": {
                "lr": optim.lr,
                "betas": [optim.beta1, optim.beta2],
                "eps": optim.eps,
                "weight_decay": optim.weight_decay,
                "torch_adam": True,
            },
        }
    return settings


def _decay_groups(module: nn.Module, optim: OptimConfig) -> list[dict[str, Any]]:
    """Matrices decay; biases and norms do not."""
    decayed: list[nn.Parameter] = []
    spared: list[nn.Parameter] = []
    for parameter in module.parameters():
        shape = getattr(parameter, "ds_shape", parameter.shape)  # ZeRO-3 flattens, and keeps the shape here
        (decayed if len(shape) > 1 else spared).append(parameter)
    groups = [{"params": decayed, "weight_decay": optim.weight_decay}, {"params": spared, "weight_decay": 0.0}]
    return [g for g in groups if g["params"]]
