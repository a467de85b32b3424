"""One run: its directory, its calendar of validations and checkpoints, and what is told of it."""

from __future__ import annotations

import contextlib
import copy
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from rlvr.clock import Clock, process_seconds
from rlvr.engine.export import write_model
from rlvr.keys import ConfigError, RunError
from rlvr.leave import REQUEUE, Leave, job_end
from rlvr.rollout.collect import Collected
from rlvr.rollout.draw import Abandoned
from rlvr.schema.train import TrainConfig
from rlvr.schema.triggers import Event
from rlvr.trainer.changes import changes, check_changes, in_words
from rlvr.trainer.checkpoint import SUPERSEDED, Checkpoints, Progress
from rlvr.trainer.cost import Cost
from rlvr.trainer.display import Display
from rlvr.trainer.events import Causes, Events
from rlvr.trainer.farewell import SUMMARY, farewell
from rlvr.trainer.record import Record
from rlvr.trainer.sealed import told_plainly
from rlvr.trainer.setup import Parts, build
from rlvr.watchdog import Watchdog
from rlvr.world import World

Metrics = dict[str, float]
UNHEALTHY = 3  # the exit code of a run that a guard, or a trigger's abort, has stopped


@dataclass
class Done:
    """A step whose updates are done: what was sampled, and what has been measured of it so far."""

    collected: Collected
    row: Metrics
    samples: list[dict[str, Any]] = field(default_factory=list)  # of its validation
    validated: bool = False
    improved: bool = False  # its validation is the best so far


class Run:
    """Everything around the loop; a context manager that closes what it opened, whatever happens."""

    def __init__(self, config: TrainConfig, world: World, run_dir: Path, watchdog: Watchdog) -> None:
        self.asked, self.world, self.dir = config, world, run_dir
        self.config = copy.deepcopy(config)  # follows the stages
        self.checkpoints = Checkpoints(run_dir, config, world)
        self._found: Path | None = None  # the checkpoint to go on from
        self.display = Display(config.steps, enabled=world.leader)
        self.clock = Clock(self._entered)
        self._watchdog = watchdog
        self.leave = Leave(world.broadcast(job_end(os.environ)), config.run.margin)
        self._saved = self._begun = 0  # steps: done at the newest checkpoint, and at the beginning of this start
        self._open = contextlib.ExitStack()

    def complete(self) -> bool:
        """Whether an earlier start has done all of it; says so.

        Raises:
            ConfigError: if it cannot be gone on from, would be another experiment, or is another run's checkpoint that
                has all the steps already: nothing would be trained.
        """
        resume = self.config.run.resume
        found = self._found = self.checkpoints.find(resume)
        if found is None:
            return False
        self._compare(found)
        progress = self.checkpoints.progress_of(found)
        if found.resolve().parent != self.checkpoints.folder.resolve() and progress.step >= self.config.steps:
            raise ConfigError(
                f"run.resume={resume} stands at step {progress.step}, and steps={self.config.steps}: there is nothing "
                "to train; raise steps"
            )
        if not (self.dir / SUMMARY).exists():
            return False
        if progress.stopped:
            self.display.note(f"{self.dir} is complete: stopped after step {progress.step}, see events.jsonl")
        elif progress.step >= self.config.steps:
            self.display.note(f"{self.dir} is complete: {self.config.steps} steps are done; raise steps to go on")
        return progress.stopped or progress.step >= self.config.steps

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opened:
            opened.enter_context(self.display)
            opened.enter_context(self.leave)
            self.parts = self._built()
            opened.callback(self.parts.judge.close)
            opened.callback(self.parts.engines.close)
            opened.callback(self.parts.rollouts.close)
            self.progress = self._resumed()
            self.parts.collector.retirement.state = self.progress.retired
            self._begun = self.progress.step
            self.events = Events(self.config, self.parts, self.progress, self.checkpoints, self.world, self.display)
            self.record = opened.enter_context(Record(self.asked, self.dir, self.world.rank, self.progress.step))
            self.cost = Cost(self.config, self.world, self.parts.engines.parameters())
            self._open = opened.pop_all()
        survey = self.clock.take().get("survey", 0.0)
        self.record.started(self.progress.step, process_seconds() - survey, survey)
        self._mark = time.perf_counter()
        if not self.progress.step:
            self._write(*self._validate())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        abandoned = isinstance(error, Abandoned)
        try:
            if abandoned:
                self._save_and_say_why()
            if error is None or abandoned or isinstance(error, SystemExit):  # then all ranks are here
                self.checkpoints.settle()
            else:
                self.checkpoints.abandon()
        finally:
            with told_plainly(f"{self.dir}: the records could not be closed"):
                self._open.__exit__(kind, error, at)
        if abandoned:
            sys.exit(REQUEUE)

    def _built(self) -> Parts:
        try:
            return build(self.config, self.world, self.clock, self.display, self.dir, self.leave.sampling_is_over)
        except Abandoned:
            self.display.note("leaving during the survey: what is drawn is stored; the same command goes on")
            sys.exit(REQUEUE)

    def _entered(self, phase: str) -> None:
        self._watchdog.enter(phase)
        self.display.phase(phase)

    def _compare(self, found: Path) -> None:
        """Tell what is configured otherwise than when the checkpoint was written, and refuse what may not be."""
        changed = changes(self.checkpoints.config_of(found), self.checkpoints.run_config)
        check_changes(changed, self.config.run.allow_change, str(found))
        if changed:
            self.display.note(f"the configuration has changed since {found}:\n{in_words(changed)}")

    def _resumed(self) -> Progress:
        found, resume = self._found, self.config.run.resume
        progress = Progress()
        if found:
            allowed = self.config.run.allow_change
            progress = self.checkpoints.load(found, self.parts.engines, self.parts.algorithm, allowed)
            self._saved = progress.step
            self.display.note(f"resuming after step {progress.step} from {found}")
        if resume not in ("auto", "never"):
            progress.origin = str(Path(resume).resolve())
        if later := self.checkpoints.set_aside_after(progress.step):
            self.display.note(f"{', '.join(later)}: moved to {self.checkpoints.folder / SUPERSEDED}")
        return progress

    # -- the calendar ------------------------------------------------------------------------------

    def remaining(self) -> Iterator[int]:
        """The numbers of the rollout steps that are still to do, counted from 0."""
        while not self._over:
            yield self.progress.step

    def ahead(self, collected: Collected) -> contextlib.AbstractContextManager[None]:
        """What the step is learned from inside of: with rollout.async_steps=1 the next one's rollouts are drawn
        meanwhile, unless none may be in flight when the step is done."""
        done = self.progress.step + 1
        if not self.config.rollout.async_steps or self._empty_after(done):
            return contextlib.nullcontext()
        return self.parts.rollouts.ahead(collected.cursor, done)

    def measure(self, collected: Collected, metrics: Metrics) -> Done:
        """Count a step, and validate where the calendar says so."""
        self.progress.step += 1
        self.progress.cursor = collected.cursor
        row = {f"train/{k}": v for k, v in metrics.items()} | collected.tally.means("rollout/")
        row |= self.cost.memory()
        if self.config.rollout.async_steps:
            row["rollout/staleness"] = float(collected.staleness)
        if self.config.data.retire:
            row["data/retired"] = float(collected.retired)
        if self.events.stages.number:
            row["stage"] = float(self.events.stages.number)
        done = Done(collected, row)
        if self._over or _due(self.progress.step, self.config.validation.every):
            self._validate_step(done)
        return done

    def close(self, done: Done, causes: Causes) -> None:
        """Record a step with the events behind it, save where the calendar says so, and leave where we are told to.

        Raises:
            SystemExit: on all ranks, once one of them was told to leave, or where the run is to be aborted.
        """
        if self._over and not done.validated:
            self._validate_step(done)
        self.checkpoints.check()
        row = done.row | self.parts.health.counted() | {f"event/{event}": 1.0 for event in causes}
        with told_plainly(f"{self.dir}: the records of step {self.progress.step} could not be written"):
            with self.clock("record"):
                self.record.rollouts(self.progress.step, done.collected.rows)
                self.record.prompts(self.progress.step, done.collected.prompts)
                self.record.events(self.progress.step, causes)
            phases, seconds = self.clock.take(), self._lap()
            self._write(row | self.cost.of(done.collected.tally, phases, seconds), done.samples)
        self.leave.measured(seconds, phases)
        if Event.ABORT in causes:
            self._abort(causes[Event.ABORT])
        leaving = self.world.any(self.leave.no_more_steps()) and not self._over
        if self._over or leaving or done.improved or self._checkpoint_due(self.progress.step):
            self._save()
        if leaving:
            self._save_and_say_why()
            sys.exit(REQUEUE)

    def finish(self) -> None:
        """Wait for the last checkpoint, report the test role, write model and curve, say where everything is."""
        self.checkpoints.settle()
        test: Metrics = {}
        if self.config.validation.test and self.parts.prompts["test"]:
            test, _, problems = self.parts.evaluator.evaluate("test", self.parts.prompts["test"])
            self.record.problems("test", self.progress.step, problems)
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

    def _checkpoint_due(self, step: int) -> bool:
        config = self.config.checkpoint
        return _due(step, config.every) or _due(step, config.milestones)

    def _empty_after(self, step: int) -> bool:
        """Whether nothing may be in flight after so many steps: where a checkpoint is due or may be, for it holds no
        rollouts; and after the first step, so that the check of weight transfer sees weights that have moved."""
        may_improve = self.config.checkpoint.best and _due(step, self.config.validation.every)
        return step == 1 or step >= self.config.steps or self._checkpoint_due(step) or may_improve

    def _validate(self) -> tuple[Metrics, list[dict[str, Any]]]:
        prompts = self.parts.prompts["validation"]
        if not prompts:
            return {}, []
        metrics, samples, problems = self.parts.evaluator.evaluate("validation", prompts)
        self.record.problems("validation", self.progress.step, problems)
        return metrics, samples

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
        start = time.perf_counter()
        with self.clock("checkpoint"):
            self.record.flush()
            self.checkpoints.save(self.progress, self.parts.engines, self.parts.algorithm)
        self._saved = self.progress.step
        self.leave.saved(time.perf_counter() - start + self.checkpoints.seconds_behind)

    def _save_and_say_why(self) -> None:
        """Before the run leaves: save what is not saved yet.

        Raises:
            RunError: if the job's time was too short for one step: another start would not come further.
        """
        why = next(reason for reason in self.world.gather(self.leave.why()) if reason)
        if self.progress.step == self._begun and not self.world.any(self.leave.signalled):
            raise RunError(f"the time of the job has no room for a single step ({why}): give it more time")
        if self._saved != self.progress.step:
            self._save()
        self.checkpoints.settle()
        self.display.note(f"leaving ({why}): saved after step {self.progress.step}; the same command goes on")

    def _lap(self) -> float:
        now = time.perf_counter()
        seconds, self._mark = now - self._mark, now
        return seconds

    def _abort(self, cause: str) -> NoReturn:
        """Leave as failed, with nothing saved: what went wrong may be in the weights already."""
        self.record.flush()
        self.display.note(f"stopped as failed in step {self.progress.step}: {cause}")
        good = self.checkpoints.find("auto")
        way_out = f"the same command goes on from {good}" if good else "there is no checkpoint to go on from"
        self.display.note(f"nothing of this step was saved; {way_out}; docs/health.md says what each guard means")
        sys.exit(UNHEALTHY)


def _due(step: int, every: int) -> bool:
    return bool(every) and step % every == 0
