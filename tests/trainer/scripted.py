"""A whole run on fakes: the real loop, records and checkpoints around a policy that is one number."""

import itertools
import json
import os
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import torch

from rlvr.clock import Clock
from rlvr.config import compose
from rlvr.data.retire import Retirement
from rlvr.data.stream import PromptStream
from rlvr.engine.parts import SmallFile
from rlvr.records import Prompt
from rlvr.rollout.ahead import Rollouts
from rlvr.rollout.collect import Collected
from rlvr.tally import Tally
from rlvr.trainer import loop, run
from rlvr.trainer.health import Health
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
        self.done, self.pin = [], None

    @contextmanager
    def pinned(self):
        self.pin = self.policy
        yield
        self.pin = None

    def score(self, batch, fields):
        return batch

    @property
    def next_move(self):
        return 0.5 * self.moment + 1.0

    def learn(self):
        self.moment = self.next_move
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

    def snapshot(self):
        return [SmallFile("state.json", json.dumps([self.policy, self.moment, self.reference]).encode())]

    card = (SmallFile("model/config.json", b"{}"),)

    def load(self, folder, forgiven=(), other_reference=False):
        self.policy, self.moment, self.reference = json.loads((folder / "state.json").read_text())

    def parameters(self):
        return 1

    def close(self):
        pass


class FakeCollector:
    """Takes prompts from the real stream, and lets config and policy of the moment be seen in the rollouts."""

    def __init__(self, config, stream, script, engines):
        self.config, self.stream, self.script, self.engines = config, stream, script, engines
        self.drawer = SimpleNamespace(unwanted=False)
        self.retirement = Retirement([])

    def collect(self, cursor, step):
        return self.noted(self.roll_out(cursor, step), step)

    def noted(self, collected, step):
        self.script.step = step + 1
        return collected

    def roll_out(self, cursor, step):
        step += 1
        rollout, algorithm = self.config.rollout, self.config.algorithm
        after = cursor + rollout.prompts + step % 3  # some are rejected
        seen = dict(group=algorithm.group, max_tokens=rollout.max_tokens, lr=self.config.optim.lr)
        seen["policy"] = self.engines.policy if self.engines.pin is None else self.engines.pin
        rows = [{"id": self.stream.at(i).id, "position": i, "error": None} | seen for i in range(cursor, after)]
        tally = Tally()
        tally.add("length", self.script.value("rollout/length", 10.0, step))
        tally.add("unjudged", self.script.value("rollout/unjudged", 0.0, step))
        tally.add("kept", self.script.value("rollout/kept", 1.0, step))
        return Collected(SimpleNamespace(having=lambda **made: None), after, tally, rows, [], 0)


class Script:
    """What is measured, by metric and step; and what happens in the middle of a step."""

    def __init__(self, measured=None, scheduled=None, happens=None):
        self.measured, self.scheduled, self.happens = measured or {}, scheduled or {}, happens or {}
        self.step = 0

    def value(self, metric, otherwise, step=None):
        return self.measured.get(metric, {}).get(step or self.step, otherwise)

    def parts(self, config, engines):
        def update(batch, step, staleness):
            self.happens.get(step + 1, lambda: None)()
            kl = (engines.policy + engines.next_move - engines.reference) ** 2
            usual = {"reward": 0.1, "kl_ref_k3": kl, "entropy": 1.0, "loss": 0.0, "grad_norm": 1.0}
            told = {name: self.value(f"train/{name}", value) for name, value in usual.items()}
            health.reward(told["reward"])
            if health.admits({f"train/{name}": value for name, value in told.items() if name != "reward"}):
                engines.learn()
            return told

        def evaluate(role, prompts):
            return {f"{role}/accuracy": self.value("validation/accuracy", 0.5)}, [], []

        def events(step, metrics):
            algorithm.state["steps"] = step + 1
            return self.scheduled.get(step + 1, ())

        health = Health(config.health, ALONE)
        algorithm = SimpleNamespace(state={}, signal=lambda batch: {}, events=events)
        weights = {name: source.weight for name, source in config.data.sources.items()}
        prompts = {name: [prompt(name, i) for i in range(6)] for name in weights}
        stream = PromptStream(prompts, weights, config.seed)
        collector = FakeCollector(config, stream, self, engines)
        return SimpleNamespace(
            algorithm=algorithm,
            engines=engines,
            tokenizer=None,
            prompts={"train": list(itertools.chain(*prompts.values())), "validation": [0], "test": []},
            collector=collector,
            rollouts=Rollouts(collector, engines, ALONE.device, Clock()),
            updater=SimpleNamespace(update=update, scored_before=lambda step: frozenset()),
            evaluator=SimpleNamespace(evaluate=evaluate),
            judge=SimpleNamespace(close=lambda: None),
            health=health,
        )


def prompt(source, number):
    same = dict(source=source, text="", answer="", verifier="number")
    return Prompt(id=f"{source}/{number}", tokens=(number,), **same)


def two_sources(config):
    """The same config with a second source, b, that is not in use."""
    config.data.sources["b"] = replace(config.data.sources["arithmetic"], weight=0.0)
    return config


def play(monkeypatch, folder, config, script, world=ALONE, start=None):
    """Run it, from step `start` or the newest checkpoint's; returns the engines as they are at the end."""
    engines = FakeEngines()
    monkeypatch.setattr(run, "build", lambda config, *rest: script.parts(config, engines))
    folder.mkdir(exist_ok=True)
    state = folder / "checkpoints"
    found = sorted(state.glob("step_*")) if state.exists() else []
    newest = int(found[-1].name[5:]) if found else 0
    script.step = newest if start is None else start
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
