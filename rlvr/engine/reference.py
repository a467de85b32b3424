"""The reference policy: frozen weights that only an event may move."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import deepspeed
import torch
from deepspeed.runtime.zero import GatheredParameters
from safetensors.torch import load_file
from torch import Tensor

from rlvr.engine.export import write_weights
from rlvr.engine.learner import deepspeed_settings, load_sharded, whole_weights
from rlvr.engine.models import LanguageModel
from rlvr.engine.scorer import Scorer
from rlvr.schema.hardware import HardwareConfig
from rlvr.schema.model import ModelConfig
from rlvr.world import World


class Reference(Scorer):
    """Sharded over the ranks under ZeRO-3, whole on each rank otherwise."""

    def __init__(
        self, folder: str, model: ModelConfig, hardware: HardwareConfig, world: World, temperature: float
    ) -> None:
        settings = deepspeed_settings(hardware, None)
        self.model = load_sharded(LanguageModel, folder, model, hardware, settings).requires_grad_(False)
        sharded = hardware.zero == 3
        module = deepspeed.initialize(model=self.model, config=settings)[0] if sharded else self.model.to(world.device)
        super().__init__(module, world, hardware.tokens_per_micro_batch, temperature)
        self.version = 0  # how often it has been moved

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """(name in Hugging Face's model, whole tensor) one by one; under ZeRO-3 every rank must walk along."""
        yield from whole_weights(self.model)

    @torch.no_grad()
    def copy_from(self, weights: Iterator[tuple[str, Tensor]]) -> None:
        """Become another model of the same shape; every rank walks along."""
        own = {name.removeprefix("hf."): parameter for name, parameter in self.model.named_parameters()}
        for name, tensor in weights:
            with GatheredParameters([own[name]], modifier_rank=0, enabled=hasattr(own[name], "ds_id")):
                own[name].data.copy_(tensor)
        self.version += 1

    def save(self, folder: Path) -> None:
        """Write weights and version, for a reference that has left the base model."""
        write_weights(self.weights(), folder, self.world)
        if self.world.leader:
            (folder / "version.json").write_text(json.dumps(self.version))

    def load(self, folder: Path) -> None:
        """The inverse of `save`."""
        files = sorted(folder.glob("*.safetensors"))
        self.copy_from(item for file in files for item in load_file(file).items())
        self.version = json.loads((folder / "version.json").read_text())

    def identity(self) -> str:
        """A hash of the weights: two references with the same identity are the same policy."""
        digest = hashlib.sha256()
        for name, tensor in self.weights():
            digest.update(name.encode())
            digest.update(tensor.detach().float().cpu().numpy().tobytes())
        return digest.hexdigest()[:16]
