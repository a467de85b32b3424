"""The learner: a language model under DeepSpeed, its optimizer, and its weights as a stream."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import deepspeed
import torch
from deepspeed.runtime.zero import GatheredParameters
from torch import Tensor, nn
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer
from transformers.integrations import HfDeepSpeedConfig

from rlvr.engine.models import Backbone, LanguageModel
from rlvr.engine.partition import Partition, shape_of
from rlvr.engine.parts import PartsFile, PartsFolder, file_name, is_whole
from rlvr.engine.scorer import Scorer
from rlvr.schema.hardware import HardwareConfig
from rlvr.schema.model import ModelConfig
from rlvr.schema.train import OptimConfig
from rlvr.world import World

WEIGHTS, OPTIMIZER = "weights", "optimizer"  # kinds of files of a learner
AVERAGED = 50_000_000  # numbers that ranks average at once without ZeRO; a copy of them is made

# At its first start on a CPU DeepSpeed would compile a shared-memory all-reduce: a compiler and half a minute.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


class Gate:
    """Stands before an optimizer and may keep it from moving anything, on all ranks or none.

    AdamW passes over a parameter without a gradient, its moments and decay included.  DeepSpeed knows the gradient's
    norm before it steps the optimizer that it was given: so hiding the gradients from that one is all it takes.
    """

    def __init__(self, optimizer: Optimizer, norm: Callable[[], float]) -> None:
        """`norm` is the gradient's over all ranks by the time that the optimizer steps; not finite if it is invalid."""
        self._norm = norm
        self._admits: Callable[[float], bool] | None = None
        self._decided: tuple[float, bool] | None = None
        self._hidden: list[tuple[nn.Parameter, Tensor | None]] = []
        optimizer.register_step_pre_hook(self._before)
        optimizer.register_step_post_hook(self._after)

    def close(self, admits: Callable[[float], bool]) -> None:
        """Ask `admits` of the norm when the optimizer comes to step."""
        self._admits, self._decided = admits, None

    def decision(self) -> tuple[float, bool]:
        """The norm, and whether the step is let through; asked once, though ZeRO may step in parts, or not at all."""
        assert self._admits is not None
        if self._decided is None:
            norm = self._norm()
            self._decided = norm, self._admits(norm)
        return self._decided

    def _before(self, optimizer: Optimizer, arguments: Any, named: Any) -> None:
        if self._admits and not self.decision()[1]:
            self._hidden = [(p, p.grad) for group in optimizer.param_groups for p in group["params"]]
            for parameter, _ in self._hidden:
                parameter.grad = None

    def _after(self, optimizer: Optimizer, arguments: Any, named: Any) -> None:
        for parameter, gradient in self._hidden:  # buffers that ZeRO's offload uses again
            parameter.grad = gradient
        self._hidden = []


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
        self._partition = Partition(self.engine, self.model, hardware.zero, world)
        self._norm_is_ours = hardware.zero == 0 and hardware.dtype == "fp32"  # DeepSpeed reports none there
        self._own_norm = 0.0
        self._averages = hardware.zero == 0 and world.size > 1
        if hardware.zero == 0:  # DeepSpeed would copy all gradients at once, also those of one rank alone
            self.engine.enable_backward_allreduce = False
        self._gate = Gate(self.engine.basic_optimizer, self._norm)
        super().__init__(self.engine, world, hardware, temperature)

    def backward(self, loss: Tensor, last: bool) -> None:
        """Add a micro-batch's gradient; `last` closes the update, which lets ZeRO reduce once where it can.

        ZeRO averages over ranks, while losses are parts of one global mean: hence the factor.
        """
        self.engine.set_gradient_accumulation_boundary(last)
        self.engine.backward(loss * self.world.size)
        if last and self._averages:
            self.engine.allreduce_gradients(AVERAGED)

    def update(self, lr: float, admits: Callable[[float], bool] = math.isfinite) -> float:
        """Step the optimizer, if the gradient is admitted; weights and moments stay bit for bit as they are if not.

        Args:
            lr: the learning rate.
            admits: told the gradient's norm before clipping, infinite where the gradient is not finite; called once,
                and to answer the same on all ranks.  It cannot admit what is not finite.

        Returns:
            That norm.
        """
        for group in self.engine.optimizer.param_groups:
            group["lr"] = lr
        if self._norm_is_ours:  # now, for DeepSpeed clips before it steps
            self._own_norm = float(get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None]))
        self._gate.close(lambda norm: admits(norm) and math.isfinite(norm))
        self.engine.step()
        return self._gate.decision()[0]

    def _norm(self) -> float:
        """The gradient's norm over all ranks; DeepSpeed marks an invalid one by -1 or by inf."""
        norm = self._own_norm if self._norm_is_ours else float(self.engine.optimizer._global_grad_norm)
        return norm if math.isfinite(norm) and norm >= 0 else math.inf

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """(name in Hugging Face's model, whole tensor) one by one; under ZeRO-3 every rank must walk along."""
        yield from whole_weights(self.model)

    def reset_optimizer(self) -> None:
        """Forget the moments of AdamW; weights and learning rate stay."""
        for state in self.engine.basic_optimizer.state.values():
            for value in state.values():
                if isinstance(value, Tensor):
                    value.zero_()

    def snapshot(self, name: str) -> list[PartsFile]:
        """This rank's share of weights and moments, copied to host memory: files below the folder `name`."""
        owned = self._partition.owned()
        if not self.engine.zero_optimization():  # every rank has all: share out the writing
            owned = owned[self.world.rank :: self.world.size]
        held = {WEIGHTS: self._partition.weights(owned), OPTIMIZER: self._partition.moments(owned)}
        told = {"updates": str(self._partition.updates())}
        return [
            PartsFile(f"{name}/{file_name(kind, self.world)}", tuple(part.copied() for part in parts), told)
            for kind, parts in held.items()
        ]

    @torch.no_grad()
    def load(self, folder: Path, forgiven: Collection[str] = ()) -> None:
        """Take the state that any number of ranks has written under any ZeRO stage; every rank calls it.

        Args:
            folder: as `snapshot` names it.
            forgiven: with "optimizer" in it, moments that are not there begin at zero.

        Raises:
            ConfigError: if something is missing, damaged, or of another model.
        """
        owned = self._partition.owned()
        with PartsFolder(folder, WEIGHTS) as stored:
            stored.check_names({name: shape_of(p) for name, p in self._partition.named()})
            stored.fill(self._partition.weights(owned))
        self._partition.spread()
        if OPTIMIZER in forgiven and not is_whole(folder, OPTIMIZER):
            self.reset_optimizer()
            return
        with PartsFolder(folder, OPTIMIZER) as stored:
            stored.fill(self._partition.moments(owned))
            self._partition.set_updates(owned, int(stored.told["updates"]))


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
                "lr": 0.0,  # given at every update; DeepSpeed takes a step as it starts, which must not decay weights
                "betas": [optim.beta1, optim.beta2],
                "eps": optim.eps,
                "weight_decay": optim.weight_decay,
                "torch_adam": True,
                "fused": True,  # one pass over each tensor instead of a dozen, without a temporary
            },
        }
    return settings


def _decay_groups(module: nn.Module, optim: OptimConfig) -> list[dict[str, Any]]:
    """Matrices decay; biases and norms do not."""
    decayed: list[nn.Parameter] = []
    spared: list[nn.Parameter] = []
    for parameter in module.parameters():
        (decayed if len(shape_of(parameter)) > 1 else spared).append(parameter)
    groups = [{"params": decayed, "weight_decay": optim.weight_decay}, {"params": spared, "weight_decay": 0.0}]
    return [g for g in groups if g["params"]]
