"""A run that ends where training would begin."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from rlvr.clock import Clock
from rlvr.schema.train import TrainConfig
from rlvr.trainer.display import Display
from rlvr.trainer.setup import build
from rlvr.watchdog import Watchdog
from rlvr.world import World


def survey_only(config: TrainConfig, world: World, run_dir: Path, watchdog: Watchdog) -> None:
    """All that comes before training, the survey last, and no more.

    Raises:
        ConfigError: for anything that the user can mend.
    """
    with ExitStack() as opened:
        display = opened.enter_context(Display(config.steps, enabled=world.leader))

        def entered(phase: str) -> None:
            watchdog.enter(phase)
            display.phase(phase)

        parts = build(config, world, Clock(entered), display, run_dir)
        opened.callback(parts.judge.close)
        opened.callback(parts.engines.close)
        names = {"report": "survey.txt", "numbers": "survey.json", "prompts": "survey.jsonl"}
        display.places({name: run_dir / file for name, file in names.items()})
