"""One run: its directory, its calendar of validations and checkpoints, and what is told of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rlvr.clock import Clock
from rlvr.engine.export import write_model
from rlvr.rollout.collect import Collected
from rlvr.schema.train import TrainConfig
from rlvr.tally import Tally
from rlvr.trainer.checkpoint import Checkpoints, Progress
from rlvr.trainer.cost import Cost
from rlvr.trainer.display import Display
from rlvr.trainer.farewell import SUMMARY, farewell
from rlvr.trainer.record import Record
from rlvr.trainer.setup import build
from rlvr.watchdog import Watchdog
from rlvr.world import World

Metrics = dict[str, float]


class Run:
    """Everything around the loop; a context manager that closes what it opened, whatever happens."""

    def __init__(self, config: TrainConfig, world: World, run_dir: Path, watchdog: Watchdog) -> None:
        self.config, self.world, self.dir = config, world, run_dir
        self.checkpoints = Checkpoints(run_dir, config.checkpoint, world)
        self.display = Display(config.steps, enabled=world.leader)
        self.clock = Clock(self._entered)
        self._watchdog = watchdog
        self._open = contextlib.ExitStack()

    def complete(self) -> bool:
        """Whether an earlier start has done all of it; says so."""
        found = self.checkpoints.find(self.config.run.resume)
        done = found is not None and (self.dir / SUMMARY).exists() and self.checkpoints.step_of(found) >= self.config.steps
        if done:
            self.display.note(f"{self.dir} is complete: {self.config.steps} steps are done; raise steps to go on")
        return done

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opened:
            opened.enter_context(self.display)
            self.parts = build(self.config, self.world, self.clock, self.display)
            opened.callback(self.parts.judge.close)
            opened.callback(self.parts.engines.close)
            self.progress = self._resumed()
            self.record = opened.enter_context(Record(self.config, self.dir, self.world.rank, self.progress.step))
            self.cost = Cost(self.config, self.world, self.parts.engines.parameters())
            self._open = opened.pop_all()
        self.clock.take()
        self._mark = time.perf_counter()
        if not self.progress.step:
            self._write({}, *self._validate())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._open.__exit__(kind, error, at)

    def _entered(self, phase: str) -> None:
        self._watchdog.enter(phase)
        self.display.phase(phase)

    def _resumed(self) -> Progress:
        found = self.checkpoints.find(self.config.run.resume)
        if not found:
            return Progress()
        progress = self.checkpoints.load(found, self.parts.engines, self.parts.algorithm)
        self.display.note(f"resuming after step {progress.step} from {found}")
        return progress

    # -- the calendar ------------------------------------------------------------------------------

    def remaining(self) -> Iterator[int]:
        """The numbers of the rollout steps that are still to do, counted from 0."""
        yield from range(self.progress.step, self.config.steps)

    def advance(self, collected: Collected, metrics: Metrics) -> None:
        """Close a step: count it, then validate, record and save where the calendar says so."""
        self.progress.step += 1
        self.progress.cursor = collected.cursor
        step, last = self.progress.step, self.progress.step == self.config.steps
        sampled = Tally.merged(self.world.gather(collected.tally))
        row = {f"train/{k}": v for k, v in metrics.items()} | sampled.means("rollout/")
        self._check_judged(row, collected)
        validated, samples, improved = {}, [], False
        if last or _due(step, self.config.validation.every):
            validated, samples = self._validate()
            improved = self._note_best(validated)
        with self.clock("record"):
            self.record.rollouts(step, collected.rows)
            self.record.prompts(step, collected.prompts)
        self._write(row | self.cost.of(sampled, self.clock.take(), self._lap()), validated, samples)
        if last or improved or _due(step, self.config.checkpoint.every):
            self._save()

    def finish(self) -> None:
        """Report the test role, write the model, draw the curve, say where everything is."""
        test: Metrics = {}
        if self.config.validation.test and self.parts.prompts["test"]:
            test, _ = self.parts.evaluator.evaluate("test", self.parts.prompts["test"])
        paths: dict[str, Any] = {"checkpoint": self.checkpoints.find("auto")}
        if self.config.checkpoint.model:
            paths["model"] = self.dir / "model"
            policy = self.parts.engines.learners["policy"]
            write_model(policy.weights(), policy.model.hf, self.parts.tokenizer, paths["model"], self.world)
        if self.world.leader:
            farewell(self.display, self.record, self.dir, test, paths)

    # -- what happens at a date --------------------------------------------------------------------------

    def _validate(self) -> tuple[Metrics, list[dict[str, Any]]]:
        prompts = self.parts.prompts["validation"]
        return self.parts.evaluator.evaluate("validation", prompts) if prompts else ({}, [])

    def _note_best(self, validated: Metrics) -> bool:
        accuracy, best = validated.get("validation/accuracy"), self.progress.best_accuracy
        if accuracy is None or (best is not None and accuracy <= best):
            return False
        self.progress.best_accuracy, self.progress.best_step = accuracy, self.progress.step
        return self.config.checkpoint.best

    def _write(self, row: Metrics, validated: Metrics, samples: list[dict[str, Any]]) -> None:
        self.record.step(self.progress.step, row | validated, samples)
        self.display.update(self.progress.step, row | validated)

    def _save(self) -> None:
        with self.clock("checkpoint"):
            self.record.flush()
            self.checkpoints.save(self.progress, self.parts.engines, self.parts.algorithm)

    def _lap(self) -> float:
        now = time.perf_counter()
        seconds, self._mark = now - self._mark, now
        return seconds

    def _check_judged(self, row: Metrics, collected: Collected) -> None:
        """Stop when verifiers fail too often: such a run would learn from the answers that happen not to break them.

        Raises:
            RuntimeError: with the causes.
        """
        share, limit = row["rollout/unjudged"], self.config.verify.max_unjudged
        if share > limit:
            causes = sorted({str(r["error"]) for r in collected.rows if r["error"]})[:3]
            raise RuntimeError(
                f"{share:.1%} of this step's responses could not be judged, above verify.max_unjudged={limit}; causes: "
                + "; ".join(causes)
            )


def _due(step: int, every: int) -> bool:
    return bool(every) and step % every == 0
