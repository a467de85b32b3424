"""One run: its directory, its calendar of validations and checkpoints, and what is told of it."""

from __future__ import annotations

import contextlib
import copy
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
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
from rlvr.trainer.events import Causes, Events
from rlvr.trainer.farewell import SUMMARY, farewell
from rlvr.trainer.record import Record
from rlvr.trainer.setup import build
from rlvr.watchdog import Watchdog
from rlvr.world import World

Metrics = dict[str, float]
REQUEUE = 85  # the exit code of a run that was told to leave, has saved, and wants to be started again


@dataclass
class Done:
    """A step whose updates are done: what was sampled, and what has been measured of it so far."""

    collected: Collected
    sampled: Tally  # over all ranks
    row: Metrics
    samples: list[dict[str, Any]] = field(default_factory=list)  # of its validation
    validated: bool = False
    improved: bool = False  # its validation is the best so far


class Run:
    """Everything around the loop; a context manager that closes what it opened, whatever happens."""

    def __init__(self, config: TrainConfig, world: World, run_dir: Path, watchdog: Watchdog) -> None:
        self.asked, self.world, self.dir = config, world, run_dir
        self.config = copy.deepcopy(config)  # follows the stages
        self.checkpoints = Checkpoints(run_dir, config.checkpoint, world)
        self.display = Display(config.steps, enabled=world.leader)
        self.clock = Clock(self._entered)
        self._watchdog = watchdog
        self._told_to_leave = False
        self._open = contextlib.ExitStack()

    def complete(self) -> bool:
        """Whether an earlier start has done all of it; says so."""
        found = self.checkpoints.find(self.config.run.resume)
        if found is None or not (self.dir / SUMMARY).exists():
            return False
        progress = self.checkpoints.progress_of(found)
        if progress.stopped:
            self.display.note(f"{self.dir} is complete: stopped after step {progress.step}, see events.jsonl")
        elif progress.step >= self.config.steps:
            self.display.note(f"{self.dir} is complete: {self.config.steps} steps are done; raise steps to go on")
        return progress.stopped or progress.step >= self.config.steps

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opened:
            opened.enter_context(self.display)
            self.parts = build(self.config, self.world, self.clock, self.display, self.dir)
            opened.callback(self.parts.judge.close)
            opened.callback(self.parts.engines.close)
            self.progress = self._resumed()
            self.events = Events(self.config, self.parts, self.progress, self.checkpoints, self.world, self.display)
            self.record = opened.enter_context(Record(self.asked, self.dir, self.world.rank, self.progress.step))
            self.cost = Cost(self.config, self.world, self.parts.engines.parameters())
            before = signal.signal(signal.SIGTERM, self._leave)
            opened.callback(signal.signal, signal.SIGTERM, before or signal.SIG_DFL)
            self._open = opened.pop_all()
        self.clock.take()
        self._mark = time.perf_counter()
        if not self.progress.step:
            self._write(*self._validate())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._open.__exit__(kind, error, at)

    def _leave(self, number: int, frame: object) -> None:
        """SIGTERM: finish the step first; a second one ends the process at once."""
        self._told_to_leave = True
        signal.signal(number, signal.SIG_DFL)

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
        while not self._over:
            yield self.progress.step

    def measure(self, collected: Collected, metrics: Metrics) -> Done:
        """Count a step, and validate where the calendar says so."""
        self.progress.step += 1
        self.progress.cursor = collected.cursor
        sampled = Tally.merged(self.world.gather(collected.tally))
        row = {f"train/{k}": v for k, v in metrics.items()} | sampled.means("rollout/")
        if self.events.stages.number:
            row["stage"] = float(self.events.stages.number)
        self._check_judged(row, collected)
        done = Done(collected, sampled, row)
        if self._over or _due(self.progress.step, self.config.validation.every):
            self._validate_step(done)
        return done

    def close(self, done: Done, causes: Causes) -> None:
        """Record a step with the events behind it, save where the calendar says so, and leave where we are told to.

        Raises:
            SystemExit: on all ranks, once one of them was sent SIGTERM.
        """
        if self._over and not done.validated:
            self._validate_step(done)
        row = done.row | {f"event/{event}": 1.0 for event in causes}
        with self.clock("record"):
            self.record.rollouts(self.progress.step, done.collected.rows)
            self.record.prompts(self.progress.step, done.collected.prompts)
            self.record.events(self.progress.step, causes)
        self._write(row | self.cost.of(done.sampled, self.clock.take(), self._lap()), done.samples)
        leaving = self.world.any(self._told_to_leave) and not self._over
        if self._over or leaving or done.improved or _due(self.progress.step, self.config.checkpoint.every):
            self._save()
        if leaving:
            self.display.note(f"told to leave: saved after step {self.progress.step}; the same command goes on")
            sys.exit(REQUEUE)

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

    @property
    def _over(self) -> bool:
        """Whether no step follows."""
        return self.progress.step >= self.config.steps or self.progress.stopped

    def _validate(self) -> tuple[Metrics, list[dict[str, Any]]]:
        prompts = self.parts.prompts["validation"]
        return self.parts.evaluator.evaluate("validation", prompts) if prompts else ({}, [])

    def _validate_step(self, done: Done) -> None:
        validated, done.samples = self._validate()
        done.row, done.validated = done.row | validated, True
        accuracy, best = validated.get("validation/accuracy"), self.progress.best_accuracy
        if accuracy is not None and (best is None or accuracy > best):
            self.progress.best_accuracy, self.progress.best_step = accuracy, self.progress.step
            done.improved = self.config.checkpoint.best

    def _write(self, row: Metrics, samples: list[dict[str, Any]]) -> None:
        self.record.step(self.progress.step, row, samples)
        self.display.update(self.progress.step, row)

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
