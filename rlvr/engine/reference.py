"""The reference policy: frozen weights that only an event may move."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deepspeed
import torch
from deepspeed.runtime.zero import GatheredParameters
from torch import Tensor

from rlvr.engine.learner import WEIGHTS, deepspeed_settings, load_sharded, whole_weights
from rlvr.engine.models import DTYPES, LanguageModel
from rlvr.engine.partition import shape_of
from rlvr.engine.parts import Part, PartsFile, PartsFolder, SmallFile, file_name
from rlvr.engine.scorer import Scorer
from rlvr.keys import ConfigError
from rlvr.schema.hardware import HardwareConfig
from rlvr.schema.model import ModelConfig
from rlvr.world import World

CARD = "reference.json"  # which policy it is


class Reference(Scorer):
    """Sharded over the ranks under ZeRO-3, whole on each rank otherwise."""

    def __init__(
        self, folder: str, model: ModelConfig, hardware: HardwareConfig, world: World, temperature: float
    ) -> None:
        settings = deepspeed_settings(hardware, None)
        self.model = load_sharded(LanguageModel, folder, model, hardware, settings).requires_grad_(False)
        sharded = hardware.zero == 3
        module = deepspeed.initialize(model=self.model, config=settings)[0] if sharded else self.model.to(world.device)
        super().__init__(module, world, hardware, temperature)
        self.version = 0  # how often it has been moved
        self._identity: str | None = None
        self._sharded, self._dtype = sharded, hardware.dtype

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
        self.version, self._identity = self.version + 1, None

    def snapshot(self, name: str) -> list[PartsFile | SmallFile]:
        """What tells which policy this is, and its weights if they are not those of the base model; every rank calls
        it, and gets its share of the files below the folder `name`."""
        told = json.dumps({"version": self.version, "identity": self.identity()})
        files: list[PartsFile | SmallFile] = [SmallFile(f"{name}/{CARD}", told.encode())] if self.world.leader else []
        if self.version:
            parts = tuple(part.copied() for part in self._parts())
            files.append(PartsFile(f"{name}/{file_name(WEIGHTS, self.world)}", parts))
        return files

    def _parts(self) -> list[Part]:
        """This rank's share of all weights."""
        named: list[tuple[str, Any]] = [(n.removeprefix("hf."), p) for n, p in self.model.named_parameters()]
        if not self._sharded:
            return [Part(name, shape_of(p), 0, p.view(-1)) for name, p in named[self.world.rank :: self.world.size]]
        parts = []
        for name, p in named:
            padded = p.ds_tensor.numel()
            start = padded * self.world.rank
            parts.append(Part(name, shape_of(p), start, p.ds_tensor.view(-1)[: max(0, p.ds_numel - start)]))
        return [part for part in parts if len(part.data_n)]

    def load(self, folder: Path, allow_change: bool = False) -> None:
        """The inverse of `snapshot`, on any number of ranks; every rank calls it.

        Args:
            allow_change: take a reference for what it is now, even if it is another policy than when it was saved.

        Raises:
            ConfigError: if it is another policy than the one that was saved.
        """
        told = json.loads((folder / CARD).read_text(encoding="utf-8"))
        if told["version"]:
            with PartsFolder(folder, WEIGHTS) as stored:
                stored.check_names({n.removeprefix("hf."): shape_of(p) for n, p in self.model.named_parameters()})
                self.copy_from(stored.whole(DTYPES[self._dtype]))
        self.version = told["version"]
        if not allow_change and (now := self.identity()) != told["identity"]:
            what = "its saved weights are damaged" if told["version"] else "the base model's weights have changed"
            raise ConfigError(
                f"{folder}: the reference was {told['identity']} and would now be {now}: {what}, and KL would be "
                "measured against another policy; put the old ones back, or accept it with run.allow_change=[reference]"
            )

    def identity(self) -> str:
        """A hash of the weights: two references with the same identity are the same policy; every rank calls it."""
        if self._identity is None:
            digest = hashlib.sha256()
            for name, tensor in self.weights():
                digest.update(name.encode())
                digest.update(tensor.detach().float().cpu().numpy().tobytes())
            self._identity = digest.hexdigest()[:16]
        return self._identity
