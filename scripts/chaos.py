"""Kill a run again and again and compare what it leaves with a run that nothing disturbs.

    python scripts/chaos.py 20                              # one rank
    python scripts/chaos.py 10 --ranks 2 algorithm=armor    # any overrides of `rlvr train`

A kill is SIGKILL to the launcher's whole process group or to one rank, at a moment drawn from --seed.  Each of the two
runs has a cache of its own, so that they do not share completions of the reference.  Exit code 1 on any difference, on
any step that was lost beyond the last checkpoint, and if the run ended before all kills were done.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TIMED = ("time/", "speed/", "memory/", "log/")  # what differs between two equal runs
SMALL = (
    "run.name=chaos",
    "algorithm=dapo",
    "algorithm.group=4",
    "algorithm.minibatches=2",
    "rollout.prompts=8",
    "rollout.max_tokens=4",
    "validation.every=2",
    "checkpoint.every=1",
    "checkpoint.model=false",
    "log.wandb=off",
    "log.kl_every=1",
    "model.warm_accuracy=0.5",
    "data.sources.arithmetic.options.digits=1",
    "data.sources.arithmetic.train=30",
    "data.sources.arithmetic.validation=12",
    "data.sources.arithmetic.test=12",
    "hardware.threads=1",
    "hardware.sampler_sequences=64",
)
FURTHER = (0, 0, 0, 1, 2, 3)  # steps that a start may do before it is killed in the next one; the first one is slow
STEPS = 4  # of the run, per kill: never less than what FURTHER allows
EARLY = 0.15  # share of kills that come while the run is still starting
STARTING = 10.0  # seconds: the longest wait of these
LIMIT = 600.0  # seconds that one start may take


@dataclass(frozen=True)
class Kill:
    """What was killed, and in which state the run was."""

    whole: bool  # the process group, or else one rank
    phase: str  # in which rank 0 was
    recorded: int  # steps in metrics.jsonl
    saved: int  # step of the newest complete checkpoint


@dataclass(frozen=True)
class Pace:
    """Seconds of the first step of a start, which is slow, and of a later one."""

    first: float
    later: float


class Run:
    """One run directory with a cache of its own."""

    def __init__(self, folder: Path, cache: Path, overrides: list[str]) -> None:
        self.dir, self.cache = folder, cache
        self.command = [sys.executable, "-m", "rlvr.cli", "train", *SMALL, *overrides, f"hydra.run.dir={folder}"]

    def start(self) -> subprocess.Popen[str]:
        env = os.environ | {"XDG_CACHE_HOME": str(self.cache)}
        self.log = (self.dir.parent / f"{self.dir.name}.log").open("a")
        self.offset = self.log.tell()
        return subprocess.Popen(
            self.command, env=env, stdout=self.log, stderr=self.log, text=True, start_new_session=True
        )

    def phase(self) -> str:
        try:
            return str(json.loads((self.dir / "ranks" / "rank0.json").read_text())["phase"])
        except (OSError, ValueError):
            return "start"

    def stepping(self) -> bool:
        """Whether this start has come to its first step."""
        return bool(re.search(r"resuming after step|step 0/", Path(self.log.name).read_text()[self.offset :]))

    def steps(self) -> list[int]:
        return [row["step"] for row in rows(self.dir / "metrics.jsonl")]

    def saved(self) -> int:
        """The step of the newest complete checkpoint; 0 if there is none."""
        return max((int(path.parent.name[5:]) for path in self.dir.glob("checkpoints/step_*/complete.json")), default=0)


def rows(path: Path) -> list[dict[str, Any]]:
    """Whole rows, without what is timed."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    told = [json.loads(line) for line in lines if line.endswith("\n")]
    return [{name: value for name, value in row.items() if not name.startswith(TIMED)} for row in told]


def descendants(pid: int) -> list[int]:
    """Processes below `pid`, parents first."""
    children = [int(c) for task in Path(f"/proc/{pid}/task").glob("*/children") for c in task.read_text().split()]
    return [found for child in children for found in (child, *descendants(child))]


def ranks_of(launcher: int) -> list[int]:
    """The processes of the ranks."""
    found = []
    for pid in descendants(launcher):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:  # it has just ended
            continue
        if b"rlvr.worker" in words:
            found.append(pid)
    return found


def kill(run: Run, process: subprocess.Popen[str], chance: random.Random, pace: Pace) -> Kill | None:
    """Wait, and kill; None if the run was over before."""
    if chance.random() < EARLY:
        wait = chance.uniform(0, STARTING)
    else:
        _await(run.stepping, process)
        further = chance.choice(FURTHER)
        last = max(run.steps(), default=0) + further
        _await(lambda: max(run.steps(), default=0) >= last, process)
        wait = chance.uniform(0, pace.later if further else pace.first)
    end = time.monotonic() + wait
    _await(lambda: time.monotonic() > end, process)
    if process.poll() is not None:
        return None
    told = Kill(chance.random() < 0.5, run.phase(), max(run.steps(), default=0), run.saved())
    ranks = ranks_of(process.pid)
    if told.whole or not ranks:
        os.killpg(process.pid, signal.SIGKILL)
        for rank in ranks:  # the launcher has given them sessions of their own
            _end(rank)
    else:
        _end(chance.choice(ranks))
    process.wait(LIMIT)
    return told


def _await(holds: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Return when it holds, or when the process is over."""
    end = time.monotonic() + LIMIT
    while not holds() and process.poll() is None:
        if time.monotonic() > end:
            raise TimeoutError(f"nothing has happened for {LIMIT:g} s")
        time.sleep(0.005)


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def disturbed(run: Run, kills: int, chance: random.Random, pace: Pace) -> tuple[list[Kill], int]:
    """Start and kill until it is done; the kills, and the steps that were lost beyond the last checkpoint."""
    done: list[Kill] = []
    lost = 0
    while True:
        saved, process = run.saved(), run.start()
        killed = kill(run, process, chance, pace) if len(done) < kills else None
        code = process.wait(LIMIT)
        resumed = re.findall(r"resuming after step (\d+)", Path(run.log.name).read_text()[run.offset :])
        lost += sum(saved - int(step) for step in resumed)
        if killed is None:
            if code:
                raise RuntimeError(f"{run.dir} ended with exit code {code}: see {run.log.name}")
            return done, lost
        done.append(killed)
        what = "all" if killed.whole else "one rank"
        print(
            f"kill {len(done):>3}: {what:<8} in {killed.phase:<22} after step {killed.recorded}, saved {killed.saved}",
            flush=True,
        )


def differences(one: Path, other: Path) -> dict[str, int]:
    """Rows that only one of two runs has, by kind of file."""
    names = ("metrics.jsonl", "samples.jsonl", "events.jsonl", "rollouts/rank*.jsonl", "prompts/rank*.jsonl")
    found = {}
    for name in names:
        left, right = (
            Counter(json.dumps(row, sort_keys=True) for path in sorted(run.glob(name)) for row in rows(path))
            for run in (one, other)
        )
        found[name] = ((left - right) + (right - left)).total()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kills", type=int)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path("runs/chaos"), help="is emptied")
    given, overrides = parser.parse_known_args()
    shutil.rmtree(given.folder, ignore_errors=True)
    given.folder.mkdir(parents=True)
    overrides = [f"hardware.ranks={given.ranks}", f"steps={STEPS * given.kills}", *overrides]
    plain = Run(given.folder / "plain", given.folder / "cache", overrides)
    if plain.start().wait(4 * LIMIT) != 0:
        raise RuntimeError(f"the undisturbed run failed: see {plain.log.name}")
    seconds = [json.loads(line).get("time/step") for line in (plain.dir / "metrics.jsonl").read_text().splitlines()]
    first, *later = filter(None, seconds)
    pace = Pace(first, sorted(later)[len(later) // 2])
    models = given.folder / "cache_of_killed" / "rlvr" / "models"
    shutil.copytree(given.folder / "cache" / "rlvr" / "models", models)
    hurt = Run(given.folder / "killed", given.folder / "cache_of_killed", overrides)
    kills, lost = disturbed(hurt, given.kills, random.Random(given.seed), pace)
    differ = differences(plain.dir, hurt.dir)
    print(f"phases of the kills: {dict(Counter(k.phase for k in kills).most_common())}")
    print(f"steps: {hurt.steps()[-1]} of {plain.steps()[-1]}; kills: {len(kills)} of {given.kills}")
    print(f"steps lost beyond the last checkpoint: {lost}; differing rows: {differ}")
    same = lost == 0 and not any(differ.values()) and hurt.steps() == plain.steps()
    print("no difference" if same else "NOT THE SAME")
    if len(kills) < given.kills:
        print("the run ended before all kills were done")
    return 0 if same and len(kills) == given.kills else 1


if __name__ == "__main__":
    sys.exit(main())
