"""One rank of `test_learner.py`: per case two updates on a fixed batch, their gradient norms, the weights' movement.

With `refuse`, updates that are not to be applied stand before each of the two.
"""

import json
import math
import sys
from pathlib import Path
from typing import Any

import torch

from rlvr.algorithms.base import Algorithm
from rlvr.batch import Batch
from rlvr.engine.learner import Learner
from rlvr.engine.packing import piece
from rlvr.schema.train import OptimConfig
from rlvr.world import World
from tests.engine.models import MODEL, hardware
from tests.engine.test_packing import batch_of

# With a large epsilon AdamW's step is nearly proportional to the gradient, so that weights show it.
OPTIM = OptimConfig(
    lr=1.0,
    critic_lr=1.0,
    warmup=0,
    schedule="constant",
    beta1=0.9,
    beta2=0.99,
    eps=10.0,
    weight_decay=0.01,
    clip_grad=0.5,
)
ROWS = [([5 + i, 6, 7][: 1 + i % 3], [8 + (i * j) % 50 for j in range(1, 2 + i % 5)]) for i in range(8)]


def share(world: World) -> Batch:
    """Rows rank, rank + size, ...: the same global batch on any number of ranks, of unequal token counts."""
    batch = batch_of(*ROWS[world.rank :: world.size])
    push = torch.tensor([(-1.0) ** i * (1 + i) for i in range(8)])[world.rank :: world.size]
    return batch.having(advantages_BT=batch.spread(push), total=world.sum)


def two_updates(folder: str, world: World, case: dict[str, Any], state: Path) -> dict[str, Any]:
    """Train, and say how the weights moved; with `resume`, through a checkpoint and a fresh learner in between."""
    settings = hardware(**case.get("hardware", {}))
    learner = Learner(folder, MODEL, settings, OPTIM, world, temperature=0.7)
    before = {name: tensor.clone() for name, tensor in learner.weights()}
    norms, held = [], True
    for update in range(2):
        if update == 1 and case.get("resume"):
            state.mkdir(exist_ok=True)
            for file in learner.snapshot("policy"):
                file.write(state)
            world.barrier()
            learner = Learner(folder, MODEL, settings, OPTIM, world, temperature=0.7)
            learner.load(state / "policy")
        if case.get("refuse"):
            held = held and refusals_hold(learner, world, case)
        pieces = backward(learner, share(world).weighted(case.get("average", "token")))
        norms.append(learner.update(0.1))
    moved = {name: tensor - before[name] for name, tensor in learner.weights()}
    return {"norms": norms, "moved": moved, "pieces": pieces, "held": held}


def backward(learner: Learner, mini: Batch, factor: float = 1.0) -> int:
    """Make the gradient of the batch; returns the number of micro-batches."""
    cuts = learner.cuts(mini, Algorithm.unit)
    for number, rows in enumerate(cuts):
        micro = piece(mini, rows)
        new = learner.forward(micro, entropy_learns=True)
        loss = -micro.token_mean(new.logprobs_BT * micro.advantages_BT + 0.1 * new.entropy_BT)
        learner.backward(factor * loss, last=number == len(cuts) - 1)
    return len(cuts)


def refusals_hold(learner: Learner, world: World, case: dict[str, Any]) -> bool:
    """Whether weights stay bit for bit after a gradient that is not admitted, and after NaN and inf on one rank."""
    before = {name: tensor.clone() for name, tensor in learner.weights()}
    mini, heard = share(world).weighted(case.get("average", "token")), []
    for factor in (1.0, math.nan, math.inf):
        backward(learner, mini, factor if world.rank == 0 else 1.0)

        def admits(norm: float) -> bool:
            heard.append(norm)
            return not math.isfinite(norm)  # what is not finite must not pass even so

        learner.update(0.1, admits)
    same = all(torch.equal(tensor, before[name]) for name, tensor in learner.weights())
    return same and 0 < heard[0] < math.inf and heard[1:] == [math.inf, math.inf]


def main(folder: str, cases: str, out: str) -> None:
    world = World.from_env("cpu", 60.0)
    told = {
        name: two_updates(folder, world, case, Path(out).parent / f"state-{world.size}-{number}")
        for number, (name, case) in enumerate(json.loads(cases).items())
    }
    if world.rank == 0:
        torch.save(told, out)
    world.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
