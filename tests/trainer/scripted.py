"""A whole run on fakes: the real loop, records and checkpoints around a policy that is one number."""

import itertools
import json
import os
from copy import deepcopy
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import torch

from rlvr.config import compose
from rlvr.data.stream import PromptStream
from rlvr.records import Prompt
from rlvr.rollout.collect import Collected
from rlvr.tally import Tally
from rlvr.trainer import loop, run
from rlvr.world import World

TIMED = ("time/", "speed/", "memory/")
SMALL = (
    "run.name=scripted",
    "algorithm=prorl",
    "algorithm.minibatches=1",
    "rollout.prompts=4",
    "log.wandb=off",
    "checkpoint.model=false",
)
ALONE = World(rank=0, size=1, local_rank=0, local_size=1, device=torch.device("cpu"), backend="gloo")


@cache
def _composed(overrides):
    return compose(overrides)


def small(*overrides):
    """A config of its own."""
    return deepcopy(_composed((*SMALL, *overrides)))


def hurry(monkeypatch):
    """Without the summary at the end, which has tests of its own, and without waiting for the disk."""
    monkeypatch.setattr(run, "farewell", lambda display, record, folder, *rest: (folder / run.SUMMARY).write_text("{}"))
    monkeypatch.setattr(os, "fsync", lambda handle: None)


class Killed(Exception):
    """The run ends here, as at a power cut."""


class FakeEngines:
    """A policy that moves by its momentum, and a reference."""

    def __init__(self):
        self.policy, self.moment, self.reference, self.temperature = 0.0, 0.0, 0.0, None
        self.done = []

    def score(self, batch, fields):
        return batch

    def learn(self):
        self.moment = 0.5 * self.moment + 1.0
        self.policy += self.moment

    def reset_reference(self):
        self.done.append("reset_reference")
        self.reference = self.policy

    def reset_optimizer(self):
        self.done.append("reset_optimizer")
        self.moment = 0.0

    def restore(self, folder):
        self.done.append(f"restore {folder.name}")
        self.policy, self.moment, _ = json.loads((folder / "state.json").read_text())

    def set_temperature(self, temperature):
        self.temperature = temperature

    def save(self, folder):
        (folder / "state.json").write_text(json.dumps([self.policy, self.moment, self.reference]))

    def load(self, folder):
        self.policy, self.moment, self.reference = json.loads((folder / "state.json").read_text())

    def parameters(self):
        return 1

    def close(self):
        pass


class FakeCollector:
    """Takes prompts from the real stream, and lets the config of the moment be seen in the rollouts."""

    def __init__(self, config, stream, script):
        self.config, self.stream, self.script = config, stream, script

    def collect(self, cursor):
        step = self.script.step = self.script.step + 1
        rollout, algorithm = self.config.rollout, self.config.algorithm
        after = cursor + rollout.prompts + step % 3  # some are rejected
        seen = dict(group=algorithm.group, max_tokens=rollout.max_tokens, lr=self.config.optim.lr)
        rows = [{"id": self.stream.at(i).id, "position": i, "error": None} | seen for i in range(cursor, after)]
        tally = Tally()
        tally.add("length", self.script.value("rollout/length", 10.0))
        tally.add("unjudged", 0.0)
        return Collected(SimpleNamespace(having=lambda **made: None), after, tally, rows, [])


class Script:
    """What is measured, by metric and step; and what happens in the middle of a step."""

    def __init__(self, measured=None, scheduled=None, happens=None):
        self.measured, self.scheduled, self.happens = measured or {}, scheduled or {}, happens or {}
        self.step = 0

    def value(self, metric, otherwise):
        return self.measured.get(metric, {}).get(self.step, otherwise)

    def parts(self, config, engines):
        def update(batch, step):
            self.happens.get(step + 1, lambda: None)()
            engines.learn()
            kl = self.value("train/kl_ref_k3", (engines.policy - engines.reference) ** 2)
            return {"reward": 0.1, "kl_ref_k3": kl, "entropy": self.value("train/entropy", 1.0)}

        def evaluate(role, prompts):
            return {f"{role}/accuracy": self.value("validation/accuracy", 0.5)}, []

        def events(step, metrics):
            algorithm.state["steps"] = step + 1
            return self.scheduled.get(step + 1, ())

        algorithm = SimpleNamespace(state={}, signal=lambda batch: {}, events=events)
        weights = {name: source.weight for name, source in config.data.sources.items()}
        prompts = {name: [prompt(name, i) for i in range(6)] for name in weights}
        stream = PromptStream(prompts, weights, config.seed)
        return SimpleNamespace(
            algorithm=algorithm,
            engines=engines,
            tokenizer=None,
            prompts={"train": list(itertools.chain(*prompts.values())), "validation": [0], "test": []},
            collector=FakeCollector(config, stream, self),
            updater=SimpleNamespace(update=update, scored_before=lambda step: frozenset()),
            evaluator=SimpleNamespace(evaluate=evaluate),
            judge=SimpleNamespace(close=lambda: None),
        )


def prompt(source, number):
    same = dict(source=source, text="", answer="", verifier="number")
    return Prompt(id=f"{source}/{number}", tokens=(number,), **same)


def two_sources(config):
    """The same config with a second source, b, that is not in use."""
    config.data.sources["b"] = replace(config.data.sources["arithmetic"], weight=0.0)
    return config


def play(monkeypatch, folder, config, script, world=ALONE):
    """Run it; returns the engines as they are at the end, whatever ends it."""
    engines = FakeEngines()
    monkeypatch.setattr(run, "build", lambda config, *rest: script.parts(config, engines))
    folder.mkdir(exist_ok=True)
    state = folder / "checkpoints"
    found = sorted(state.glob("step_*")) if state.exists() else []
    script.step = int(found[-1].name[5:]) if found else 0
    loop.train(config, world, folder, SimpleNamespace(enter=lambda phase: None))
    return engines


def told(folder, name="metrics.jsonl"):
    """The rows of a run, without what differs between two equal runs."""
    path = folder / name
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [{k: v for k, v in row.items() if not k.startswith(TIMED)} for row in rows]


def fired(folder):
    """(step, event) of a run; metrics and events.jsonl must agree."""
    listed = [(row["step"], row["event"]) for row in told(folder, "events.jsonl")]
    rows = [(row["step"], name[6:]) for row in told(folder) for name in row if name.startswith("event/")]
    assert listed == rows
    return listed
