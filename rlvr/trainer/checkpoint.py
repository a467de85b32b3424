"""Checkpoints: everything a run needs to go on exactly, written so that a kill at any moment loses nothing.

A checkpoint is a folder.  The loop is held while the state is copied to host memory; then every rank writes its files
into a hidden folder, and the leading rank, once it has found the lists of all ranks, seals the folder with a manifest
and renames it.  A folder without its manifest, or whose files do not match it, is skipped or refused.

    progress.json    where the run stands
    config.json      its configuration
    policy/          weights and moments, in parts (engine/parts.py); critic/ the same
    reference/       which policy it is, and its weights once it has been moved
    model/           what else a Hugging Face model needs: configuration and tokenizer
    complete.json    the manifest
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from traceback import format_exception
from typing import Any, TypeVar

from rlvr.algorithms.base import Algorithm
from rlvr.engine.engines import Engines
from rlvr.engine.parts import SmallFile
from rlvr.keys import ConfigError, RunError
from rlvr.schema.train import TrainConfig
from rlvr.trainer.background import Background
from rlvr.trainer.changes import plain
from rlvr.trainer.sealed import aside, incomplete, put, remove, seal, sync, told_plainly
from rlvr.world import World

T = TypeVar("T")
DTYPES = {"bf16": "bfloat16", "fp32": "float32"}  # hardware.dtype -> torch's name
POLL = 0.02  # seconds between two looks for the lists of the other ranks
LEAVE = 60.0  # seconds that a run which has failed waits for the files that it is writing
LEAVE_OTHERS = 5.0  # and then for those of other ranks, which may be no more
SUPERSEDED = "superseded"  # folder of checkpoints that the run has gone back behind


@dataclass
class Progress:
    """Where a run stands; equal on all ranks."""

    step: int = 0  # completed rollout steps
    cursor: int = 0  # position in the prompt stream
    best_step: int | None = None
    best_accuracy: float | None = None
    algorithm: dict[str, float] = field(default_factory=dict)  # Algorithm.state
    triggers: dict[str, dict[str, Any]] = field(default_factory=dict)  # Triggers.state
    health: dict[str, Any] = field(default_factory=dict)  # Health.state
    stages: list[dict[str, Any]] = field(default_factory=list)  # Stages.entries
    retired: dict[str, list[int]] = field(default_factory=dict)  # Retirement.state
    stopped: bool = False  # by an event, before all steps were done
    origin: str | None = None  # the checkpoint that run.resume named when the run last went back to one


class Checkpoints:
    """The checkpoints of one run directory.  Every rank calls every method, in the same order."""

    def __init__(self, run_dir: Path, config: TrainConfig, world: World) -> None:
        self.folder, self.config, self.world = run_dir / "checkpoints", config.checkpoint, world
        self.run_config = plain(config)
        self._own, self._sealing = Background("checkpoint"), Background("seal")
        self._given_up = threading.Event()
        self._work: Path | None = None  # being written

    # -- writing -------------------------------------------------------------------------------

    def save(self, progress: Progress, engines: Engines, algorithm: Algorithm) -> Path:
        """Write the state after `progress.step` steps; returns when it is copied, or with checkpoint.background=false
        when it is on the disk.  What retention no longer keeps is removed behind it.

        Raises:
            RunError: if this one, or the one before, cannot be written; complete checkpoints are untouched.
        """
        self.settle()
        target = self.folder / f"step_{progress.step:06d}"
        progress.algorithm = dict(algorithm.state)
        files = engines.snapshot()
        if self.world.leader:
            told = {"ranks": self.world.size, **asdict(progress)}
            files += engines.card
            files.append(SmallFile("progress.json", json.dumps(told, indent=1).encode()))
            files.append(SmallFile("config.json", json.dumps(self.run_config, indent=1).encode()))
        self._work = self._lead(partial(self._make_room, target))
        self._own.start(partial(self._write, self._work, files))
        if self.world.leader:
            best = progress.best_step if self.config.best else None
            self._sealing.start(partial(self._seal, self._work, target, best))
        if not self.config.background:
            self.settle()
        return target

    @property
    def seconds_behind(self) -> float:
        """The longest that a checkpoint has been written behind the loop."""
        return max(self._own.seconds, self._sealing.seconds)

    def check(self) -> None:
        """Raise what has gone wrong behind the loop, if anything has, without waiting for the rest.

        Raises:
            RunError: on all ranks, as `save`.
        """
        if self._work:
            self._raise_any(self._own.error or self._sealing.error)

    def settle(self) -> None:
        """Return when nothing is being written any more.

        Raises:
            RunError: on all ranks, as `save`.
        """
        if self._work is None:
            return
        self._own.wait()
        self._raise_any(self._own.error)
        self._sealing.wait()
        self._raise_any(self._sealing.error)
        self._work = None

    def abandon(self) -> None:
        """Leave after a failure, when the ranks no longer act together: what is nearly written is finished."""
        self._own.wait(LEAVE)
        self._sealing.wait(LEAVE_OTHERS)
        self._given_up.set()

    def _make_room(self, target: Path) -> Path:
        """The hidden folder, empty; what a killed run has left of others is removed."""
        self.folder.mkdir(exist_ok=True)  # without its parents: a run directory that has vanished is not made again
        for left in self.folder.glob(".step_*"):
            shutil.rmtree(left)
        work = aside(target, "tmp")
        work.mkdir()
        return work

    def _write(self, work: Path, files: Sequence[Any]) -> None:
        """This rank's files, and then the list of them."""
        with told_plainly(f"{work}: the checkpoint could not be written"):
            mine = [path for file in files for path in file.write(work)]
            sync(mine)
            sizes = {str(path.relative_to(work)): path.stat().st_size for path in mine}
            part = work / f".rank{self.world.rank}.part"
            part.write_text(json.dumps(sizes), encoding="utf-8")
            part.rename(_list_of(work, self.world.rank))

    def _seal(self, work: Path, target: Path, best: int | None) -> None:
        """On the leading rank: wait for the lists of all, then put the folder in its place."""
        lists = [_list_of(work, rank) for rank in range(self.world.size)]
        while not all(path.exists() for path in lists):
            if self._given_up.wait(POLL):
                return
        with told_plainly(f"{work}: the checkpoint could not be completed"):
            files: dict[str, int] = {}
            for path in lists:
                files |= json.loads(path.read_text(encoding="utf-8"))
                path.unlink()
            seal(work, files)
            put(work, target)
            self._retain(best)

    def _retain(self, best: int | None) -> None:
        steps = steps_in(self.folder)
        kept = {*sorted(steps)[-self.config.keep :], best}
        every = self.config.milestones
        for step, path in steps.items():
            if step not in kept and not (every and step % every == 0):
                remove(path)

    def _raise_any(self, error: Exception | None) -> None:
        """Raise the first rank's error on all ranks, and clean up behind it."""
        found = [(rank, text) for rank, text in enumerate(self.world.gather(_told(error))) if text]
        if not found:
            return
        self._given_up.set()
        self._own.wait()
        self._sealing.wait()
        if self.world.leader and self._work:
            shutil.rmtree(self._work, ignore_errors=True)
        self._work = None
        rank, text = found[0]
        raise RunError(f"rank {rank}: {text}\n{self._lead(self._what_is_left)}")

    def _what_is_left(self) -> str:
        whole = [step for step, path in steps_in(self.folder).items() if not incomplete(path)]
        left = f"the checkpoint of step {max(whole)} is whole" if whole else "there is no complete checkpoint"
        return f"{left}; mend the disk and give the same command again"

    # -- reading ---------------------------------------------------------------------------------

    def find(self, resume: str) -> Path | None:
        """The checkpoint that `run.resume` means, or None to start from the beginning; equal on all ranks.

        Raises:
            ConfigError: if it names a path that is no complete checkpoint, or if none of those there are is.
            RunError: as `settle`.
        """
        self.settle()
        return self._lead(partial(self._find, resume))

    def _find(self, resume: str) -> Path | None:
        if resume == "never":
            return None
        steps = steps_in(self.folder)
        newest = [steps[step] for step in sorted(steps, reverse=True)]
        reasons = {path: self._reason(path) for path in newest}
        if resume == "auto":
            usable = next((path for path in newest if not reasons[path]), None)
            if newest and not usable:
                told = "\n".join(f"  {path}: {reason}" for path, reason in reasons.items())
                raise ConfigError(
                    f"no checkpoint can be resumed from:\n{told}\nrun.resume=never begins anew beside them"
                )
            self._say_skipped(newest[: newest.index(usable)] if usable else [], reasons)
            return usable
        asked = Path(resume).resolve()
        since = [path for path in newest if not reasons[path] and self.progress_of(path).origin == str(asked)]
        if since:  # the same command again, as after a pre-emption
            return since[0]
        if reason := self._reason(asked):
            raise ConfigError(f"run.resume={resume}: {reason}")
        return asked

    def _reason(self, path: Path) -> str | None:
        """Why a checkpoint cannot be resumed from, a look at its small files included."""
        if reason := incomplete(path, self.config.allow_missing):
            return reason
        try:
            self.progress_of(path)
            self.config_of(path)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            return f"progress.json or config.json cannot be read ({type(error).__name__}: {error})"
        return None

    @staticmethod
    def _say_skipped(paths: Sequence[Path], reasons: dict[Path, str | None]) -> None:
        for path in paths:
            print(f"skipping checkpoint {path}: {reasons[path]}", flush=True)

    @staticmethod
    def progress_of(path: Path) -> Progress:
        """Where a run stood at a complete checkpoint."""
        told = json.loads((path / "progress.json").read_text(encoding="utf-8"))
        return Progress(**{f.name: told[f.name] for f in fields(Progress) if f.name in told})

    @staticmethod
    def config_of(path: Path) -> dict[str, Any]:
        """The configuration of the run that wrote it; see `plain`."""
        return dict(json.loads((path / "config.json").read_text(encoding="utf-8")))

    @classmethod
    def dtype_of(cls, path: Path) -> str:
        """What the run that wrote a checkpoint has computed in, by torch's name: the dtype of its exported weights."""
        return DTYPES[cls.config_of(path)["hardware"]["dtype"]]

    def best(self, progress: Progress) -> Path | None:
        """The checkpoint of the best validation accuracy, if there is one."""
        self.settle()
        path = self.folder / f"step_{progress.best_step or 0:06d}"
        return self._lead(lambda: None if incomplete(path) else path)

    def load(self, path: Path, engines: Engines, algorithm: Algorithm, allow_change: Sequence[str] = ()) -> Progress:
        """Restore what `save` wrote, on any number of ranks.

        Args:
            allow_change: as run.allow_change.

        Raises:
            ConfigError: if a part is missing or damaged, or the reference is another policy than it was.
        """
        progress = self.progress_of(path)
        engines.load(path, self.config.allow_missing, "reference" in allow_change)
        algorithm.state = dict(progress.algorithm)
        return progress

    def set_aside_after(self, step: int) -> list[str]:
        """Move away the checkpoints of a future that will be written anew; their names."""
        return self._lead(partial(self._set_aside_after, step))

    def _set_aside_after(self, step: int) -> list[str]:
        later = [path for number, path in sorted(steps_in(self.folder).items()) if number > step]
        for path in later:
            target = self.folder / SUPERSEDED / path.name
            target.parent.mkdir(exist_ok=True)
            if target.exists():
                shutil.rmtree(target)
            path.rename(target)
        return [path.name for path in later]

    # -- helpers -------------------------------------------------------------------------------------

    def _lead(self, action: Callable[[], T]) -> T:
        """What the leading rank's action returns or raises, on all ranks: they must not see a disk differently."""
        result: T | None = None
        error: Exception | None = None
        if self.world.leader:
            try:
                with told_plainly(f"{self.folder}: the disk failed"):
                    result = action()
            except (ConfigError, RunError) as caught:
                error = caught
        result, error = self.world.broadcast((result, error))
        if error:
            raise error
        return result  # type: ignore[return-value]


def _told(error: Exception | None) -> str:
    """What people need: the message of a disk's failure, the traceback of anything else."""
    if error is None or isinstance(error, RunError):
        return str(error or "")
    return "".join(format_exception(error))


def steps_in(folder: Path) -> dict[int, Path]:
    """The checkpoints in a folder by step, complete or not."""
    return {int(path.name[5:]): path for path in folder.glob("step_*") if path.name[5:].isdigit()}


def _list_of(work: Path, rank: int) -> Path:
    return work / f"rank{rank}.list"
