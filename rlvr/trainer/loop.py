"""The training loop."""

from __future__ import annotations

from pathlib import Path

from rlvr.schema.train import TrainConfig
from rlvr.trainer.run import Run
from rlvr.watchdog import Watchdog
from rlvr.world import World


def train(config: TrainConfig, world: World, run_dir: Path, watchdog: Watchdog) -> None:
    """Run `config.steps` rollout steps, from the newest checkpoint if there is one.

    Raises:
        ConfigError: for anything that the user can mend, before the first step.
    """
    run = Run(config, world, run_dir, watchdog)
    if run.complete():
        return
    with run:
        algorithm, engines = run.parts.algorithm, run.parts.engines
        for step in run.remaining():
            collected = run.parts.collector.collect(run.progress.cursor)
            with run.clock("score"):
                batch = engines.score(collected.batch, run.parts.updater.scored_before(step))
                batch = batch.having(**algorithm.signal(batch))
            with run.clock("update"):
                metrics = run.parts.updater.update(batch, step)
            for event in algorithm.events(step, metrics):
                engines.handle(event)
            run.advance(collected, metrics)
        run.finish()
