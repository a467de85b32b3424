"""What a step cost: seconds by phase, tokens per second, memory, and the share of the hardware's peak."""

from __future__ import annotations

import resource
from pathlib import Path

import torch

from rlvr.schema.train import TrainConfig
from rlvr.tally import Tally
from rlvr.world import World

GIB, MIB = 2**30, 2**20
WORK = ("generate", "await", "score", "forward", "backward", "optimizer")  # what no training loop can do without
BESIDE = "ahead/"  # phases of the sampling thread, whose seconds are not the loop's


class Cost:
    """Turns a step's raw measurements into metrics."""

    def __init__(self, config: TrainConfig, world: World, parameters: int) -> None:
        self.hardware, self.world, self.parameters = config.hardware, world, parameters

    def of(self, sampled: Tally, phases: dict[str, float], seconds: float) -> dict[str, float]:
        """Metrics of one step.

        Args:
            sampled: the step's rollouts over all ranks.
            phases: this rank's seconds by phase name.
            seconds: wall clock of the step.
        """
        tokens, _ = sampled.sums["length"]
        told = {f"time/{name}": spent for name, spent in phases.items()}
        told["time/step"] = seconds
        own = {name: spent for name, spent in phases.items() if not name.startswith(BESIDE)}
        working = sum(spent for name, spent in own.items() if name.rsplit("/", 1)[-1] in WORK)
        told["speed/outside_share"] = 1.0 - working / seconds
        told["speed/tokens_per_second"] = tokens / seconds
        told["memory/peak_gib"] = self._peak_memory() / GIB
        if self.hardware.peak_tflops:
            peak = self.hardware.peak_tflops * 1e12 * self.world.size
            # 2 flops per parameter and token to sample, 6 to learn; attention is left out
            told["speed/mfu"] = 8 * self.parameters * tokens / seconds / peak
        return told

    def memory(self) -> dict[str, float]:
        """Host memory of a process, in MiB; the largest of all ranks."""
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return {"memory/host_mib": self.world.max(pages * resource.getpagesize() / MIB)}

    def _peak_memory(self) -> float:
        """Bytes: of the device on a GPU, of this process on a CPU; the largest of all ranks."""
        if self.hardware.device == "cuda":
            own = float(torch.cuda.max_memory_reserved(self.world.device))
        else:
            own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
        return self.world.max(own)
