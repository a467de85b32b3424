"""Seconds that the loop is held by a checkpoint, written behind it and before its eyes, by number of parameters.

The state is that of a learner on one rank: float32 weights and two moments of each parameter.
"""

import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from rlvr.config import compose
from rlvr.engine.parts import Part, PartsFile
from rlvr.trainer.checkpoint import Checkpoints, Progress
from rlvr.world import World

SIZES = {"tiny": 0.7e6, "smollm2_135m": 134.5e6}
PIECE = 2_000_000  # numbers of one tensor
TRIES = 3


def state(parameters: float) -> dict[str, list[Part]]:
    """The files of a learner's checkpoint, as tensors in use."""
    pieces = max(1, round(parameters / PIECE))
    size = round(parameters / pieces)
    names = [f"{number}" for number in range(pieces)]
    tensors = {"weights": names, "optimizer": [f"{kind}/{n}" for n in names for kind in ("exp_avg", "exp_avg_sq")]}
    return {kind: [Part(n, (size,), 0, torch.randn(size)) for n in each] for kind, each in tensors.items()}


def held(parts: dict[str, list[Part]], background: bool, folder: Path) -> tuple[float, float]:
    """Seconds until `save` returns, and until the checkpoint is whole."""

    def snapshot() -> list[PartsFile]:
        return [
            PartsFile(f"policy/{kind}.safetensors", tuple(p.copied() for p in each)) for kind, each in parts.items()
        ]

    engines: Any = SimpleNamespace(snapshot=snapshot, card=[])
    algorithm: Any = SimpleNamespace(state={})
    world = World(rank=0, size=1, local_rank=0, local_size=1, device=torch.device("cpu"), backend="gloo")
    config = compose(["run.name=bench", "checkpoint.keep=1", f"checkpoint.background={str(background).lower()}"])
    checkpoints = Checkpoints(folder, config, world)
    saved, whole = [], []
    for step in range(1, TRIES + 1):
        start = time.perf_counter()
        checkpoints.save(Progress(step=step), engines, algorithm)
        saved.append(time.perf_counter() - start)
        checkpoints.settle()
        whole.append(time.perf_counter() - start)
    return min(saved), min(whole)


def main() -> None:
    for name, parameters in SIZES.items():
        parts = state(parameters)
        for background in (True, False):
            with tempfile.TemporaryDirectory(dir=".") as folder:
                seconds, whole = held(parts, background, Path(folder))
            told = "behind the loop" if background else "before its eyes"
            print(f"{name:<13} {told:<16} the loop is held {seconds:7.3f} s; whole after {whole:7.3f} s", flush=True)


if __name__ == "__main__":
    main()
