"""Checkpoints: everything a run needs to go on exactly, written so that a kill at any moment loses nothing.

A checkpoint is a folder.  It is written under a temporary name, synced to disk, given a manifest of
its files as the last one, and renamed.  A folder without its manifest, or whose files do not match
it, is incomplete: resuming skips it and says so.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from rlvr.algorithms.base import Algorithm
from rlvr.engine.engines import Engines
from rlvr.keys import ConfigError
from rlvr.schema.train import CheckpointConfig
from rlvr.world import World

FORMAT = 1
MANIFEST = "complete.json"


@dataclass
class Progress:
    """Where a run stands; equal on all ranks."""

    step: int = 0  # completed rollout steps
    cursor: int = 0  # position in the prompt stream
    best_step: int | None = None
    best_accuracy: float | None = None
    seconds: float = 0.0  # of training so far, over all restarts
    algorithm: dict[str, float] = field(default_factory=dict)  # Algorithm.state
    triggers: dict[str, dict[str, Any]] = field(default_factory=dict)  # Triggers.state
    stages: list[dict[str, Any]] = field(default_factory=list)  # Stages.entries
    stopped: bool = False  # by an event, before all steps were done


class Checkpoints:
    """The checkpoints of one run directory."""

    def __init__(self, run_dir: Path, config: CheckpointConfig, world: World) -> None:
        self.folder, self.config, self.world = run_dir / "checkpoints", config, world

    # -- writing -------------------------------------------------------------------------------

    def save(self, progress: Progress, engines: Engines, algorithm: Algorithm) -> Path:
        """Write the state after `progress.step` steps, then remove what retention no longer keeps; every rank calls it.

        Raises:
            OSError: if the disk is full or gone; older checkpoints are untouched.
        """
        target = self.folder / f"step_{progress.step:06d}"
        work = self.folder / f".{target.name}.tmp"
        progress.algorithm = dict(algorithm.state)
        if self.world.leader:
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
        self.world.barrier()
        engines.save(work)
        self.world.barrier()
        if self.world.leader:
            told = {"format": FORMAT, "ranks": self.world.size, **asdict(progress)}
            (work / "progress.json").write_text(json.dumps(told, indent=1))
            _seal(work)
            shutil.rmtree(target, ignore_errors=True)
            work.rename(target)
            _sync(self.folder)
            self._retain(progress)
        self.world.barrier()
        return target

    def _retain(self, progress: Progress) -> None:
        steps = sorted((_step(p), p) for p in self.folder.glob("step_*"))
        kept = {path for _, path in steps[-self.config.keep :]}
        if self.config.best and progress.best_step is not None:
            kept |= {path for step, path in steps if step == progress.best_step}
        for _, path in steps:
            if path not in kept:
                shutil.rmtree(path)

    # -- reading ---------------------------------------------------------------------------------

    def find(self, resume: str) -> Path | None:
        """The checkpoint that `run.resume` means, or None to start from the beginning.

        Raises:
            ConfigError: if it names a path that is not a complete checkpoint of this format.
        """
        if resume == "never":
            return None
        if resume == "auto":
            candidates = sorted(self.folder.glob("step_*"), key=_step, reverse=True)
            return next((path for path in candidates if self._usable(path)), None)
        path = Path(resume)
        if reason := incomplete(path):
            raise ConfigError(f"run.resume={resume}: {reason}")
        return path

    @staticmethod
    def progress_of(path: Path) -> Progress:
        """Where a run stood at a complete checkpoint."""
        told = json.loads((path / "progress.json").read_text())
        return Progress(**{f.name: told[f.name] for f in fields(Progress) if f.name in told})

    def best(self, progress: Progress) -> Path | None:
        """The checkpoint of the best validation accuracy, if there is one."""
        path = self.folder / f"step_{progress.best_step or 0:06d}"
        return None if incomplete(path) else path

    def _usable(self, path: Path) -> bool:
        reason = incomplete(path)
        if reason and self.world.leader:
            print(f"skipping checkpoint {path}: {reason}", flush=True)
        return not reason

    def load(self, path: Path, engines: Engines, algorithm: Algorithm) -> Progress:
        """Restore what `save` wrote; every rank calls it.

        Raises:
            ConfigError: if it was written on another number of ranks.
        """
        ranks = json.loads((path / "progress.json").read_text())["ranks"]
        if ranks != self.world.size:
            raise ConfigError(
                f"{path} was written by {ranks} rank(s), this run has {self.world.size}: resume on {ranks}, or start a "
                "new run from its exported model (model.path)"
            )
        progress = self.progress_of(path)
        engines.load(path)
        algorithm.state = dict(progress.algorithm)
        return progress


def incomplete(path: Path) -> str | None:
    """Why a folder is not a checkpoint that can be resumed from, or None if it is."""
    manifest = path / MANIFEST
    if not manifest.exists():
        return f"{MANIFEST} is missing: the checkpoint is half written or no checkpoint"
    told: dict[str, Any] = json.loads(manifest.read_text())
    if told["format"] != FORMAT:
        return f"its format is {told['format']}, this version reads {FORMAT}"
    for name, size in told["files"].items():
        file = path / name
        if not file.exists():
            return f"{name} is missing"
        if file.stat().st_size != size:
            return f"{name} has {file.stat().st_size} bytes instead of {size}"
    return None


def _seal(folder: Path) -> None:
    """Sync every file, then write the manifest last."""
    files = sorted(_files(folder))
    for file in files:
        _sync(file)
    sizes = {str(f.relative_to(folder)): f.stat().st_size for f in files}
    manifest = folder / MANIFEST
    manifest.write_text(json.dumps({"format": FORMAT, "files": sizes}, indent=1))
    _sync(manifest)
    _sync(folder)


def _files(folder: Path) -> Iterator[Path]:
    return (f for f in folder.rglob("*") if f.is_file())


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _step(path: Path) -> int:
    return int(path.name.rsplit("_", 1)[1])
