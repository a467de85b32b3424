"""A model as the trainer sees it: batches in, numbers aligned to completion tokens out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlvr.algorithms.base import Forward
from rlvr.batch import Batch
from rlvr.engine.packing import Packed, micro_batch_rows, piece
from rlvr.schema.hardware import HardwareConfig
from rlvr.world import World


class Scorer:
    """Runs a language model over batches, packed and in micro-batches."""

    def __init__(self, module: Any, world: World, hardware: HardwareConfig, temperature: float) -> None:
        self.module = module  # a LanguageModel, or a DeepSpeed engine around one
        self.world, self.temperature = world, temperature
        self.most_tokens = hardware.tokens_per_micro_batch
        self.share = hardware.share_prompts and hardware.attention == "packed"

    def cuts(self, batch: Batch, unit: int = 1) -> list[Tensor]:
        """Row numbers of the micro-batches of this rank's share; the same number of them on every rank."""
        return micro_batch_rows(batch, unit, self.most_tokens, self.world, self.share)

    def forward(self, micro: Batch, entropy_learns: bool = False) -> Forward:
        """One micro-batch that lies on the host; the result lies on the device, with gradients unless they are off."""
        packed = Packed.of(micro, self.world.device, self.share)
        told = self.module(packed, self.temperature, entropy_learns)
        return Forward(**{name: packed.unpacked(x_M) for name, x_M in told.items()})

    @torch.no_grad()
    def score(self, batch: Batch) -> Tensor:
        """(B, T) float32 log-probs, or a critic's values, of completion tokens; on the host, in the order of rows."""
        out_BT = torch.zeros(batch.mask_BT.shape)
        for rows in self.cuts(batch):
            new = self.forward(piece(batch, rows))
            scored = new.logprobs_BT if new.values_BT is None else new.values_BT
            assert scored is not None
            out_BT[rows] = scored[: len(rows)].cpu()
        return out_BT
