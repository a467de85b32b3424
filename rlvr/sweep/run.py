"""A sweep from the side of the command that was typed, and one of its members from the side of the job that runs it."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rlvr import launch
from rlvr.config import Job
from rlvr.config import read as read_config
from rlvr.keys import ConfigError
from rlvr.leave import REQUEUE
from rlvr.naming import member_folder
from rlvr.schema.train import TrainConfig
from rlvr.sweep.batch import Batch, TooLate, intercepted
from rlvr.sweep.member import SETTLED, Member, State, aborted, collapse, last_line, members, progress, read
from rlvr.sweep.table import markdown, rows, write_tables

LOG = logging.getLogger(__name__)
LEAVING = (REQUEUE, 128 + signal.SIGINT, 128 + signal.SIGTERM)  # exit codes that end a sweep too
LOGFILE = "train.log"  # Hydra's, in the directory of a job
BY_SUBMITIT = "SUBMITIT_EXECUTOR"  # set in a job that submitit runs


@dataclass(frozen=True)
class Planned:
    """A member before it is run."""

    member: Member  # an earlier one, if that has the same configuration
    config: TrainConfig | None  # None if it cannot be had
    refused: str = ""  # why it does not run
    again: bool = False  # whether it stands in the plan already

    @property
    def due(self) -> bool:
        """Whether it is this command's to run."""
        return not self.refused and not self.again and self.member.state not in (*SETTLED, State.RUNNING)


class Sweep:
    """What one command sweeps; without -m it stays empty."""

    def __init__(self) -> None:
        self.directory: Path | None = None
        self.objective = "best"
        self._failed = False

    @contextmanager
    def open(self) -> Iterator[None]:
        """While this is open, all batches of Hydra's sweepers are run by `run`.

        Raises:
            ConfigError: if the sweep as a whole is refused.
        """
        try:
            with intercepted(self.run):
                yield
        except ValueError as error:
            if "No trials are completed" not in str(error):  # Optuna, asked for the best of none
                raise
            LOG.error("no member has a value, so there is none to call the best")

    @property
    def code(self) -> int:
        """The exit code: 1 if any member did not come to its end."""
        return int(self._failed)

    def table(self) -> str:
        """The table of all members of the directory; empty without -m."""
        if self.directory is None:
            return ""
        return f"\n{markdown(rows(self.directory, self.objective), self.objective)}"

    def run(self, batch: Batch) -> list[float | None]:
        """Check all members, run those that are due, keep the table.

        Returns:
            the objective of each member; None where it failed or collapsed, so that no sweeper takes it for a value.

        Raises:
            ConfigError: if the sweep as a whole is refused, before any member starts.
        """
        if launch.inside():
            raise ConfigError(
                "-m under srun or torchrun: every rank would sweep; start it outside of them, with hydra/launcher=..."
            )
        plan = planned(batch)
        fast = any(p.config.sweep.fail_fast for p in plan if p.config)
        if fast and (refused := next((p.refused for p in plan if p.refused), "")):
            raise ConfigError(f"sweep.fail_fast, and a member is refused: {refused}")
        self.directory = batch.directory
        self.objective = next((p.config.sweep.objective for p in plan if p.config), self.objective)
        for p in plan:
            _prepare(p)
        print(_announcement(batch.directory, plan), flush=True)
        try:
            self._launch(batch, [p for p in plan if p.due], fast)
        finally:
            write_tables(batch.directory, self.objective)
        ended = [read(p.member.directory) or p.member for p in plan]
        self._failed |= any(p.refused or m.state not in SETTLED for p, m in zip(plan, ended, strict=True))
        return [None if p.refused else self._value(m) for p, m in zip(plan, ended, strict=True)]

    def _launch(self, batch: Batch, due: Sequence[Planned], one_by_one: bool) -> None:
        number = batch.first
        for group in [[p] for p in due] if one_by_one else [due] if due else []:
            try:
                batch.launch([p.member.overrides for p in group], number)
            except Exception:  # of a queue or a job in it; how far each member came is in its files
                LOG.exception("the launcher gave up; the same command goes on with the members that are not finished")
            number += len(group)
            if one_by_one and any(m.state not in SETTLED for p in group if (m := read(p.member.directory))):
                return

    def _value(self, member: Member) -> float | None:
        finished = member.state is State.FINISHED
        return progress(member.directory, self.objective).objective if finished else None


def planned(batch: Batch) -> list[Planned]:
    """Every member of a batch, its configuration composed and checked.

    Raises:
        TooLate: if a member is about the sweep itself.
    """
    known = {member.directory.name: member for member in members(batch.directory)}
    numbers = {folder: member.number for folder, member in known.items()}
    plan: list[Planned] = []
    for overrides in batch.members:
        folder = member_folder(overrides)
        number = numbers.setdefault(folder, max(numbers.values(), default=-1) + 1)
        member = known.get(folder) or Member(batch.directory / folder, number, overrides)
        try:
            config = batch.config(overrides)
        except TooLate:
            raise
        except ConfigError as error:
            plan.append(Planned(member, None, str(error)))
        else:
            twin = next((p.member for p in plan if p.config == config), None)
            plan.append(Planned(twin or member, config, _other_configuration(member, config), twin is not None))
    return plan


def _other_configuration(member: Member, config: TrainConfig) -> str:
    """A word on a member that has finished with values that are not those of now: a default or a YAML has changed."""
    if member.state not in SETTLED:
        return ""
    try:
        then = read_config(member.directory / "config.yaml")
    except (ConfigError, FileNotFoundError) as error:
        return f"it has finished, but its configuration cannot be read ({error}): give the sweep another run.name"
    before, now = asdict(replace(then, run=config.run, sweep=config.sweep)), asdict(config)
    changed = [section for section in now if now[section] != before[section]]
    if not changed:
        return ""
    return f"it has finished under another configuration (see {changed[0]}): give the sweep another run.name"


def _prepare(planned: Planned) -> None:
    """Write the file of a member, and the reason into the log of one that is refused."""
    member = planned.member
    if planned.due:
        member.at(State.WAITING).write()
    elif planned.config is None:
        member.at(State.FAILED, planned.refused).write()
        with (member.directory / LOGFILE).open("a", encoding="utf-8") as log:
            log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} ERROR rlvr.sweep: {planned.refused}\n")


def _announcement(directory: Path, plan: Sequence[Planned]) -> str:
    due = sum(p.due for p in plan)
    lines = [f"sweep   {os.path.relpath(directory)}: {len(plan)} member(s), {due} to run"]
    for p in plan:
        what = f"  #{p.member.number} {p.member.directory.name}: "
        if p.refused:
            lines.append(f"{what}refused: {p.refused}")
        elif p.again:
            lines.append(f"{what}asked for again, with the same configuration: it runs once")
        elif not p.due:
            lines.append(f"{what}{p.member.state}, left alone")
    return "\n".join(lines)


# -- in the job --------------------------------------------------------------------------------


def run_member(job: Job, run: Callable[[Job], int]) -> None:
    """Run one member and keep its file.

    Args:
        run: gives the exit code; what it logs as an error is the cause of a failure.

    Raises:
        SystemExit: if it was told to leave: the sweep is over, unless submitit queues the job again.
    """
    member = read(job.directory) or Member(job.directory, job.number or 0, job.overrides)
    leads = launch.is_leader()
    requeued = member.owner and member.owner.job and member.owner.job == os.environ.get("SLURM_JOB_ID")
    if leads and member.state is State.RUNNING and not requeued:
        LOG.error("%s is run by another process, %s", job.directory, member.owner)
        return
    if leads:
        member.at(State.RUNNING).write()
    with _last_error() as told:
        code = run(job)
    if leads:
        member.at(*_end(job.directory, code, told)).write()
    if code == REQUEUE and BY_SUBMITIT in os.environ:
        name = os.environ.get("SUBMITIT_PREEMPT_SIGNAL", "USR2")
        signal.raise_signal(signal.Signals[f"SIG{name}"])  # its handler, put aside during the run, queues the job again
    elif code in LEAVING:
        sys.exit(code)


def _end(directory: Path, code: int, told: Sequence[str]) -> tuple[State, str]:
    """The state in which a run ended, and why."""
    if code in LEAVING:
        return State.INTERRUPTED, f"told to leave, exit code {code}"
    cause = aborted(directory) if code else collapse(directory)
    if code and not cause:
        return State.FAILED, last_line(told[-1]) if told else f"exit code {code}"
    return (State.PRUNED, cause) if cause else (State.FINISHED, "")


@contextmanager
def _last_error() -> Iterator[list[str]]:
    """The errors that are logged while this is open, tracebacks included."""
    told: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(self.format(record))

    listener = Listener(logging.ERROR)
    logging.getLogger().addHandler(listener)
    try:
        yield told
    finally:
        logging.getLogger().removeHandler(listener)
