"""From a config to everything that the loop works with, in the order in which things can fail cheaply."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr.algorithms import ALGORITHMS
from rlvr.algorithms.base import Algorithm
from rlvr.clock import Clock
from rlvr.data.apart import keep_apart
from rlvr.data.sources import load_rows, stream_weights
from rlvr.data.stream import PromptStream
from rlvr.data.template import Renderer, stop_ids
from rlvr.engine.engines import Engines, Speaker
from rlvr.engine.models import end_tokens, load_tokenizer, model_folder
from rlvr.engine.tiny import Example
from rlvr.keys import ConfigError
from rlvr.records import Prompt, Role, Row
from rlvr.rollout.ahead import Rollouts
from rlvr.rollout.collect import Collector
from rlvr.rollout.draw import Drawer
from rlvr.rollout.judge import Judge, check_answer
from rlvr.rollout.reference import ReferenceSampler
from rlvr.rollout.survey import survey_count
from rlvr.schema.train import TrainConfig
from rlvr.trainer.display import Display
from rlvr.trainer.evaluate import Evaluator
from rlvr.trainer.health import Health
from rlvr.trainer.misfit import misfit
from rlvr.trainer.stages import refuse_stages_without_data
from rlvr.trainer.survey_report import survey_first
from rlvr.trainer.update import Updater
from rlvr.world import World

ROLES: tuple[Role, ...] = ("train", "validation", "test")


@dataclass(frozen=True)
class Parts:
    """What the loop works with."""

    algorithm: Algorithm
    engines: Engines
    tokenizer: Any
    prompts: dict[Role, list[Prompt]]
    collector: Collector
    rollouts: Rollouts
    updater: Updater
    evaluator: Evaluator
    judge: Judge
    health: Health


def build(
    config: TrainConfig,
    world: World,
    clock: Clock,
    display: Display,
    run_dir: Path,
    over: Callable[[], bool] = lambda: False,
) -> Parts:
    """Load data, model and engines; survey the training prompts, where that is asked for.

    Args:
        display: told each stage, and what a person should know of the data.
        run_dir: where the survey is written.
        over: whether this rank should stop sampling; see `Drawer`.

    Raises:
        ConfigError: for anything that the user can mend.
    """
    algorithm = ALGORITHMS[config.algorithm.name](config.algorithm)
    display.stage("loading data")
    tokenizer = load_tokenizer(config.model)
    prompts = load_prompts(config, tokenizer, display)
    refuse_stages_without_data(config, prompts["train"])
    display.stage("starting verifiers")
    judge = Judge(config.data, config.verify, itertools.chain(*prompts.values()))
    display.stage("preparing the model")
    told = _progress(display, "warm-starting the model")
    folder = world.first_per_host(lambda: model_folder(config.model, examples(prompts["train"], tokenizer), told))
    ends = stop_ids(tokenizer, end_tokens(folder, config.model.trust_remote_code), config.model.stop)
    for note in misfit(config, world):
        display.note(note)
    display.stage("starting the engines")
    engines = Engines(algorithm, Speaker(folder, tokenizer, ends), config, world, clock)
    drawer = Drawer(engines, judge, config, clock, over)
    reference = ReferenceSampler(drawer, config, world)
    if survey_count(algorithm, config):
        display.stage("surveying the training prompts")
        told = _progress(display, "surveying the training prompts")
        with clock("survey"):
            surveyed = survey_first(algorithm, reference, prompts["train"], config, world, display, run_dir, told)
        prompts["train"] = surveyed
    weights = stream_weights({name: source.weight for name, source in config.data.sources.items()}, prompts["train"])
    health = Health(config.health, world)
    stream = PromptStream(_by_source(prompts["train"]), weights, config.seed)
    collector = Collector(algorithm, drawer, reference, stream, config, world)
    return Parts(
        algorithm=algorithm,
        engines=engines,
        tokenizer=tokenizer,
        prompts=prompts,
        collector=collector,
        rollouts=Rollouts(collector, engines, world.device, clock),
        updater=Updater(algorithm, engines, config, world, clock, health),
        evaluator=Evaluator(engines, judge, config, world, clock),
        judge=judge,
        health=health,
    )


def load_prompts(config: TrainConfig, tokenizer: Any, display: Display) -> dict[Role, list[Prompt]]:
    """The prompts of the three roles, checked, rendered and kept apart.

    Raises:
        ConfigError: if there is nothing to train on.
    """
    rows: dict[Role, list[Row]] = {}
    for role in ROLES:
        rows[role], report = load_rows(config.data, role, check_answer, Path.cwd())
        if rows[role]:
            display.note(str(report))
    rows, apart = keep_apart(config.data, rows, Path.cwd())
    if told := str(apart):
        display.note(told)
    renderer, prompts = Renderer(tokenizer, config.model, config.data), {}
    for role in ROLES:
        prompts[role], rendered = renderer.render_all(rows[role])
        if rows[role]:
            display.note(f"role {role}: {rendered}")
    if not prompts["train"]:
        raise ConfigError(f"data={config.data.name}: not one row is left to train on")
    limit = config.validation.rows
    if limit:
        prompts["validation"] = prompts["validation"][:limit]
    return prompts


def examples(prompts: Sequence[Prompt], tokenizer: Any) -> list[Example]:
    """Prompts with their answers as tokens, for models that warm-start themselves.

    Rows whose answer is not text are left out.
    """
    return [
        (prompt.tokens, (*tokenizer(prompt.answer, add_special_tokens=False).input_ids, tokenizer.eos_token_id))
        for prompt in prompts
        if isinstance(prompt.answer, str)
    ]


def _progress(display: Display, what: str) -> Callable[[float], None]:
    """Tell the display every tenth of the way, once."""
    told: set[int] = set()

    def on_progress(share: float) -> None:
        tenth = int(share * 10)
        if tenth not in told:
            told.add(tenth)
            display.stage(f"{what}, {tenth * 10} %")

    return on_progress


def _by_source(prompts: Sequence[Prompt]) -> dict[str, list[Prompt]]:
    groups: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        groups.setdefault(prompt.source, []).append(prompt)
    return groups
