"""The training loop."""

from __future__ import annotations

from pathlib import Path

from rlvr.schema.train import TrainConfig
from rlvr.trainer.run import Run
from rlvr.trainer.survey_run import survey_only
from rlvr.watchdog import Watchdog
from rlvr.world import World


def train(config: TrainConfig, world: World, run_dir: Path, watchdog: Watchdog) -> None:
    """Run `config.steps` rollout steps, from the newest checkpoint if there is one.

    Raises:
        ConfigError: for anything that the user can mend, before the first step.
    """
    if config.survey.only:
        survey_only(config, world, run_dir, watchdog)
        return
    run = Run(config, world, run_dir, watchdog)
    if run.complete():
        return
    with run:
        algorithm, engines = run.parts.algorithm, run.parts.engines
        for step in run.remaining():
            collected = run.parts.rollouts.take(run.progress.cursor, step)
            run.parts.health.begin(collected)
            with run.ahead(collected):
                with run.clock("score"):
                    batch = engines.score(collected.batch, run.parts.updater.scored_before(step))
                    batch = batch.having(**algorithm.signal(batch))
                with run.clock("update"):
                    metrics = run.parts.updater.update(batch, step, collected.staleness)
            done = run.measure(collected, metrics)
            causes = run.events.due(algorithm.events(step, metrics), done.row)
            run.events.handle(causes)
            run.close(done, causes)
        run.finish()
