"""One rank of `test_state.py`: learners that train, are saved, and are loaded under another layout."""

import json
import sys
from pathlib import Path

from rlvr.engine.learner import Learner
from rlvr.engine.packing import piece
from rlvr.engine.reference import Reference
from rlvr.world import World
from tests.engine.learner_worker import OPTIM, share
from tests.engine.models import MODEL, hardware


def fresh(model: str, layout: dict, world: World) -> Learner:
    return Learner(model, MODEL, hardware(**layout), OPTIM, world, temperature=0.7)


def train(learner: Learner, world: World, updates: int) -> None:
    for _ in range(updates):
        mini = share(world).weighted("token")
        cuts = learner.cuts(mini)
        for number, rows in enumerate(cuts):
            micro = piece(mini, rows)
            new = learner.forward(micro, entropy_learns=True)
            loss = -micro.token_mean(new.logprobs_BT * micro.advantages_BT + 0.1 * new.entropy_BT)
            learner.backward(loss, last=number == len(cuts) - 1)
        learner.update(0.1)


def save(model: Learner | Reference, world: World, folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in model.snapshot(name):
        file.write(folder)
    world.barrier()


def move_reference(model: str, job: dict, learner: Learner, world: World, root: Path) -> None:
    """Save a reference that has been moved, or one of the base model; load the other layout's into a fresh one."""
    layout = hardware(**job["layout"])
    if job["save"]:
        reference = Reference(model, MODEL, layout, world, 0.7)
        save(reference, world, root / job["name"] / "base", "reference")
        reference.copy_from(learner.weights())
        save(reference, world, root / job["name"] / "moved", "reference")
    else:
        for state in ("base", "moved"):
            reference = Reference(model, MODEL, layout, world, 0.7)
            reference.load(root / job["start"] / state / "reference")
            save(reference, world, root / job["name"] / f"{state} again", "reference")


def main(model: str, jobs: str, root: str) -> None:
    """Each job: start from a state (or none), train, save; names are folders below `root`."""
    world = World.from_env("cpu", 60.0)
    for job in json.loads(jobs):
        learner = fresh(model, job["layout"], world)
        if job["start"] and job["stops"]:
            learner.load(Path(root) / job["start"] / "policy", job.get("forgiven", ()))
        for updates, name in job["stops"]:
            train(learner, world, updates)
            save(learner, world, Path(root) / name, "policy")
        if "save" in job:
            move_reference(model, job, learner, world, Path(root))
    world.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
