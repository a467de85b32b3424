"""What a run leaves behind beside its checkpoints: metrics, samples, rollouts, and a W&B run made of them.

Every rank calls the same methods.  Rank 0 writes; rollouts alone are written by every rank, each to its own file.

The step of a row counts completed rollout steps: 0 is the model as it came, and the metrics of the k-th rollout
step stand in row k together with the validation behind it.  Rows are written before the checkpoint of their step,
so a run that starts at `start_step` keeps the rows up to it and writes the later ones anew.

    run_dir/metrics.jsonl           one object per step; a number that is not finite is null
    run_dir/samples.jsonl           the sample table, `log.samples` rows per step at most
    run_dir/events.jsonl            what was done between steps, and why
    run_dir/starts.jsonl            one object per start: seconds before its first step
    run_dir/validation.jsonl        one object per validation and problem; test.jsonl: the same of the test role
    run_dir/rollouts/rank<r>.jsonl  all rollouts, if `log.rollouts`
    run_dir/environment.json        versions, commit, command line, devices (environment_<k>.json when resumed at k)
    run_dir/changes.patch           what the code differs in from that commit (changes_<k>.patch likewise)
    run_dir/wandb/                  the W&B run
"""

import json
import math
import os
import re
import secrets
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Any, Literal, Self

from rlvr.keys import ConfigError
from rlvr.redact import redact
from rlvr.schema.train import TrainConfig
from rlvr.schema.triggers import Event
from rlvr.trainer.environment import changes, environment
from rlvr.trainer.jsonl import JsonLines, Row, cut, read_rows

WandbMode = Literal["online", "offline"]
SAMPLE_COLUMNS = ("step", "prompt", "response", "answer", "score", "source", "truncated")
WANDB_MODE = {"online": "online", "run": "online", "offline": "offline", "dryrun": "offline", "disabled": "off"}
PER_RANK = ("rollouts", "prompts")  # folders in which every rank has a file of its own
INIT_SECONDS = 30.0  # W&B may take this long to answer before the run is recorded offline
FINISH_SECONDS = 60.0  # it gives up sending the last rows after this long
JOIN_SECONDS = 90.0  # and its thread is left behind after this long


class Record:
    """The records of one run, as seen by one rank; a context manager around the training loop."""

    def __init__(self, config: TrainConfig, run_dir: Path, world_rank: int, start_step: int) -> None:
        self._config, self._dir, self._rank = config, run_dir, world_rank
        self._start = start_step
        self._last = start_step if start_step > 0 else -1
        self._pending: list[Row] = []  # sample rows that wait for the metrics of their step
        self._files: dict[str, JsonLines] = {}
        self._wandb: WandbRun | None = None

    def open(self) -> None:
        """Cut what will be done again, open the files, start W&B; every rank, before the first step.

        Raises:
            ConfigError: if `log.wandb=online` cannot be had.
            ValueError: if a file that is to be continued is damaged before its last line.
        """
        if self._rank != 0:
            return
        mode = wandb_mode(self._config.log.wandb)
        self._dir.mkdir(parents=True, exist_ok=True)
        names = ["metrics.jsonl", "samples.jsonl", "events.jsonl", "validation.jsonl"]
        # of all ranks, for the run may have had more of them before
        names += [
            str(path.relative_to(self._dir)) for kind in PER_RANK for path in (self._dir / kind).glob("rank*.jsonl")
        ]
        for name in names:
            cut(self._dir / name, self._last)
        cut(self._dir / "test.jsonl", -1)  # the test role is asked at the very end, and so will be again
        suffix = f"_{self._start}" if self._start else ""
        (self._dir / f"environment{suffix}.json").write_text(json.dumps(environment(), indent=2) + "\n")
        (self._dir / f"changes{suffix}.patch").write_text(changes())
        if mode:
            self._wandb = WandbRun(mode, self._config, self._dir)

    def started(self, step: int, start: float, survey: float) -> None:
        """Append what a start took before its first step, in seconds; nothing cuts these rows: it was spent.

        Args:
            step: done when it started.
            start: of everything but the survey.
            survey: of the survey; what its store had already took none.
        """
        if self._rank == 0:
            row = {"step": step, "start_seconds": start, "survey_seconds": survey}
            self._file("starts.jsonl").write([row])

    def step(self, step: int, metrics: dict[str, float], samples: Sequence[Row] = ()) -> None:
        """Write the row of one step, at once and for good.

        Args:
            step: completed rollout steps, more than in the row before.
            metrics: flat names with slashes; any real number.
            samples: rows for the sample table, see `samples`.
        """
        if self._rank != 0:
            return
        if step <= self._last:
            raise ValueError(f"metrics of step {step} come after those of step {self._last}: steps must increase")
        self.samples(step, samples)
        row = {"step": step} | {name: float(value) for name, value in metrics.items()}
        if self._wandb:
            if self._wandb.failures:
                row["log/wandb_failures"] = float(self._wandb.failures)
            self._wandb.log(row, self._pending)
        self._file("metrics.jsonl").write([row])
        self._last, self._pending = step, []

    def samples(self, step: int, rows: Sequence[Row]) -> None:
        """Add the first `log.samples` of `rows` to the sample table, before the metrics of the same step.

        Args:
            rows: with the keys prompt, response, answer, score, source and truncated.
        """
        bounded = [{"step": step} | row for row in rows[: self._config.log.samples]]
        if self._rank != 0 or not bounded:
            return
        if missing := {column for column in SAMPLE_COLUMNS for row in bounded if column not in row}:
            raise ValueError(f"sample rows of step {step} lack {', '.join(sorted(missing))}")
        self._pending += bounded
        self._file("samples.jsonl").write(bounded)

    def events(self, step: int, causes: Mapping[Event, str]) -> None:
        """Append the events of a step with their causes, before its metrics."""
        if self._rank == 0 and causes:
            told = ({"step": step, "event": event, "cause": cause} for event, cause in causes.items())
            self._file("events.jsonl").write(told)

    def problems(self, role: Literal["validation", "test"], step: int, rows: Iterable[Row]) -> None:
        """Append what became of each problem of a role, before the metrics of the same step."""
        if self._rank == 0:
            self._file(f"{role}.jsonl").write({"step": step} | row for row in rows)

    def rollouts(self, step: int, rows: Iterable[Row]) -> None:
        """Append this rank's rollouts of a step to its own file, if `log.rollouts`."""
        if self._config.log.rollouts:
            self._file(f"rollouts/rank{self._rank}.jsonl").write({"step": step} | row for row in rows)

    def prompts(self, step: int, rows: Iterable[Row]) -> None:
        """Append what became of each prompt that this rank tried in a step to its own file."""
        self._file(f"prompts/rank{self._rank}.jsonl").write({"step": step} | row for row in rows)

    def flush(self) -> None:
        """Force everything to the disk: called before a checkpoint, which must not outlive its metrics."""
        for file in self._files.values():
            file.sync()

    def finish(self, summary: dict[str, float]) -> str | None:
        """Close everything.

        Args:
            summary: what W&B shows for the whole run.

        Returns:
            the address of the W&B run, or its directory if offline; None if there is none.
        """
        return self._close(summary, exit_code=0)

    def _close(self, summary: dict[str, float], exit_code: int) -> str | None:
        for file in self._files.values():
            file.sync()
            file.close()
        self._files = {}
        wandb_run, self._wandb = self._wandb, None
        return wandb_run.finish(summary, exit_code) if wandb_run else None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close({}, exit_code=1 if error else 0)

    def _file(self, name: str) -> JsonLines:
        if name not in self._files:
            self._files[name] = JsonLines(self._dir / name)
        return self._files[name]


# -- Weights & Biases ------------------------------------------------------------------


def wandb_mode(asked: str) -> WandbMode | None:
    """How W&B will run, given `log.wandb` and the environment; None for not at all.

    Raises:
        ConfigError: if online was asked for and cannot be had.
    """
    wish, key = asked, f"log.wandb={asked}"
    if asked == "auto" and (variable := os.environ.get("WANDB_MODE")):
        if variable not in WANDB_MODE:
            raise ConfigError(f"WANDB_MODE={variable}: must be one of {', '.join(WANDB_MODE)}; or set log.wandb")
        wish, key = WANDB_MODE[variable], f"WANDB_MODE={variable}"
    if wish == "off":
        return None
    try:
        import wandb
    except ImportError as error:
        if wish == "online":
            raise ConfigError(
                f"{key}, but wandb cannot be imported ({error}): install it or set log.wandb=off"
            ) from None
        _say(f"{key}, but wandb cannot be imported ({error}); metrics go to metrics.jsonl alone")
        return None
    if wish == "offline":
        return "offline"
    wandb.setup(settings=wandb.Settings(mode="online", silent=True))
    try:
        logged_in, why = wandb.login(prompt=False, verify=False), "no API key is configured"
    except wandb.errors.Error as error:  # a key that cannot be one
        logged_in, why = False, str(error)
    if wish == "online" and not logged_in:
        raise ConfigError(f"{key}, but {why}: run `wandb login`, set WANDB_API_KEY, or use log.wandb=offline")
    return "online" if logged_in else "offline"


def _say(text: str) -> None:
    print(f"rlvr: {redact(text)}", file=sys.stderr)


class WandbRun:
    """A W&B run behind a queue, in a thread of its own: neither a slow start nor a dead server holds up training.

    W&B drops rows whose step it has already seen, and the steps that were redone after a crash are such rows.  So
    an offline run is written anew from metrics.jsonl at every start, and its former directories go to
    wandb/superseded: the one that is left is the whole run, each step once.  A run that the server already knows
    goes on behind its last row, with what was redone marked log/redone; the axis of all charts is `step`.
    """

    def __init__(self, mode: WandbMode, config: TrainConfig, run_dir: Path) -> None:
        self.failures = 0
        self.where: str | None = None
        self._config, self._dir = config, run_dir
        self._told: set[str] = set()  # kinds of failures that were reported
        self._past = read_rows(run_dir / "metrics.jsonl")
        self._past_samples: dict[int, list[Row]] = {}
        for sample in read_rows(run_dir / "samples.jsonl"):
            self._past_samples.setdefault(sample["step"], []).append(sample)
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = Thread(target=self._work, args=(mode,), name="wandb", daemon=True)
        self._thread.start()

    def log(self, row: Row, samples: Sequence[Row]) -> None:
        self._jobs.put(partial(self._log, row, samples))

    def finish(self, summary: dict[str, float], exit_code: int) -> str | None:
        self._jobs.put(partial(self._finish, summary, exit_code))
        self._jobs.put(None)
        self._thread.join(JOIN_SECONDS)
        if self._thread.is_alive():
            _say(f"W&B did not finish within {JOIN_SECONDS:.0f} s; `wandb sync` can send {self._dir}/wandb later")
        return self.where

    def _work(self, mode: WandbMode) -> None:
        started = self._guarded(partial(self._start, mode))
        if not started and mode == "online":
            _say("recording W&B offline instead")
            started = self._guarded(self._start_over_offline)
        while started and (job := self._jobs.get()):
            self._guarded(job)

    def _guarded(self, job: Callable[[], None]) -> bool:
        try:
            job()
        # network, quota, disk, its own bugs: W&B fails in ways that cannot be listed, and none may end a training run
        except Exception as error:
            self.failures += 1
            if (kind := type(error).__name__) not in self._told:
                self._told.add(kind)
                _say(
                    f"W&B failed ({kind}: {error}); training goes on, metrics.jsonl is complete, "
                    "and failures are counted in log/wandb_failures"
                )
            return False
        return True

    def _start_over_offline(self) -> None:
        import wandb

        wandb.teardown()  # or the failed attempt would still hold the run's id
        self._start("offline")

    def _start(self, mode: WandbMode) -> None:
        import wandb

        os.environ.pop("WANDB_SERVICE", None)  # W&B's process of a parent's own run: it ends when that one wants
        for former in sorted((self._dir / "wandb").glob("offline-run-*")):
            (self._dir / "wandb" / "superseded").mkdir(exist_ok=True)
            shutil.move(former, self._dir / "wandb" / "superseded")
        self._run = wandb.init(
            project=self._config.log.project,
            name=self._config.run.name,
            id=wandb_id(self._dir, self._config.run.name),
            resume="allow",
            mode=mode,
            dir=self._dir,
            config=asdict(self._config),
            settings=wandb.Settings(
                console="off", silent=True, disable_git=True, init_timeout=INIT_SECONDS, finish_timeout=FINISH_SECONDS
            ),
        )
        self.where = self._run.url if mode == "online" else str(Path(self._run.dir).parent)
        self._run.define_metric("*", step_metric="step")
        self._table = wandb.Table(columns=list(SAMPLE_COLUMNS), log_mode="INCREMENTAL", allow_mixed_types=True)
        self._known = self._run.step  # rows below it are on the server from an earlier start
        for row in self._past:
            if row["step"] >= self._known:
                self._guarded(partial(self._log, row, self._past_samples.get(row["step"], [])))

    def _log(self, row: Row, samples: Sequence[Row]) -> None:
        shown = {name: math.nan if value is None else value for name, value in row.items()}
        if row["step"] < self._known:
            shown["log/redone"] = 1.0
        if samples:
            for sample in samples:
                self._table.add_data(*(_cell(sample[column]) for column in SAMPLE_COLUMNS))
            shown["samples"] = self._table
        self._run.log(shown, step=max(row["step"], self._run.step), commit=True)

    def _finish(self, summary: dict[str, float], exit_code: int) -> None:
        self._run.summary.update(summary)
        self._run.finish(exit_code=exit_code)


def _cell(value: Any) -> str | float | None:
    return value if isinstance(value, str | int | float | None) else json.dumps(value)


def wandb_id(run_dir: Path, name: str) -> str:
    """The id of a run directory, fixed at its first start: that of WANDB_RUN_ID, or its name and four random bytes."""
    path = run_dir / "wandb_id"
    if not path.exists():
        made = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:48] + "-" + secrets.token_hex(4)
        path.write_text(os.environ.get("WANDB_RUN_ID", made) + "\n")
    return path.read_text().strip()
