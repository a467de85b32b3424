"""One rank of `test_objectives.py`: for every algorithm and hardware, the updates of one step on the real learners."""

import json
import sys
from types import SimpleNamespace
from typing import Any

import torch

from rlvr.batch import Batch
from rlvr.clock import Clock
from rlvr.engine.learner import Learner
from rlvr.engine.models import ValueModel
from rlvr.trainer.update import Updater
from rlvr.world import World
from tests.algorithms.test_laws import CASES, algorithm_of
from tests.engine.learner_worker import OPTIM
from tests.engine.models import MODEL, SHAPE, hardware

GROUPS, GROUP, PROMPT, LONGEST = 4, 4, 3, 6
SCORES = [1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.5, 0.0, 1.0, 1.0, 0.0, 0.25, 0.0, 0.0, 0.0, 1.0]
UNJUDGED, TRUNCATED, ANCHORS = [6], [2, 13], [3, 7, 11, 15]


def rollouts() -> Batch:
    """The global batch: unequal lengths, a verdict that is missing, truncations, anchors, three passes that differ."""
    draw = torch.Generator().manual_seed(0)
    count = GROUPS * GROUP
    rows = torch.arange(count)
    length_B = torch.randint(1, LONGEST + 1, (count,), generator=draw)
    length_B[-1] = LONGEST
    column_T = torch.arange(LONGEST)
    inside_BT = column_T[None] < length_B[:, None]
    judged_B = ~torch.isin(rows, torch.tensor(UNJUDGED))
    prompt_BS = torch.randint(2, SHAPE["vocab_size"], (GROUPS, PROMPT), generator=draw).repeat_interleave(GROUP, 0)
    completion_BS = torch.randint(2, SHAPE["vocab_size"], (count, LONGEST), generator=draw) * inside_BT
    base_BT = -4.2 + 0.3 * torch.randn(count, LONGEST, generator=draw)
    passes = [(base_BT + 0.3 * torch.randn(count, LONGEST, generator=draw)) * inside_BT for _ in range(3)]
    facts = {name: torch.rand(GROUPS, generator=draw).repeat_interleave(GROUP) for name in ("v_star", "ref_success")}
    return Batch(
        tokens_BS=torch.cat([prompt_BS, completion_BS], dim=1),
        prompt_length_B=torch.full((count,), PROMPT),
        length_B=length_B,
        mask_BT=inside_BT.float() * judged_B[:, None],
        sampled_logprobs_BT=passes[0],
        score_B=torch.tensor(SCORES) * judged_B,
        judged_B=judged_B,
        truncated_B=torch.isin(rows, torch.tensor(TRUNCATED)),
        anchor_B=torch.isin(rows, torch.tensor(ANCHORS)),
        group=GROUP,
        limit=LONGEST,
        facts=facts,
        old_logprobs_BT=passes[1],
        ref_logprobs_BT=passes[2],
        values_BT=torch.rand(count, LONGEST, generator=draw),
    )


def share(world: World) -> Batch:
    """Groups rank, rank + size, ... as the slots of a step are shared."""
    groups = torch.arange(GROUPS * GROUP).view(GROUPS, GROUP)[world.rank :: world.size]
    return rollouts().take(groups.flatten()).having(total=world.sum)  # type: ignore[arg-type]


def one_step(folder: str, world: World, name: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Two updates of one step: their metrics, and how far every weight moved."""
    algorithm = algorithm_of(name, minibatches=2, truncated="mask")
    settings = hardware(mismatch_bound=1e9, **changes)
    kinds = {"policy": {}, "critic": {"kind": ValueModel}}
    learners = {
        model: Learner(folder, MODEL, settings, OPTIM, world, temperature=0.7, **kinds[model])
        for model in algorithm.losses
    }
    before = {f"{m}/{n}": t.clone() for m, learner in learners.items() for n, t in learner.weights()}
    engines = SimpleNamespace(learners=learners, updated=lambda: None)
    guards = SimpleNamespace(mismatch=SimpleNamespace(action="warn", limit=0.0))
    config = SimpleNamespace(algorithm=algorithm.config, hardware=settings, health=guards, optim=OPTIM, steps=1)
    batch = share(world)
    unguarded = SimpleNamespace(reward=lambda value: None, admits=lambda row: True)
    updater = Updater(algorithm, engines, config, world, Clock(), unguarded)  # type: ignore[arg-type]
    metrics = updater.update(batch.having(**algorithm.signal(batch)), step=0)
    moved = {f"{m}/{n}": t - before[f"{m}/{n}"] for m, learner in learners.items() for n, t in learner.weights()}
    return {"metrics": metrics, "moved": moved}


def main(folder: str, hardwares: str, out: str) -> None:
    world = World.from_env("cpu", 60.0)
    told = {
        (name, label): one_step(folder, world, name, changes)
        for name in CASES
        for label, changes in json.loads(hardwares).items()
    }
    if world.leader:
        torch.save(told, out)
    world.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
