"""One member of a sweep: its file, who runs it, and how it stands.

    sweep_dir/<folder>/member.json  its number and overrides, its state, who runs it, why it failed

All else is read from the files of the run itself.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from rlvr.trainer.jsonl import read_rows

MEMBER = "member.json"
MEASURE = "validation/accuracy"  # of a step's row: the test role is in none
LOSS = "train/loss"
HARMLESS = "validation_plateau"  # the trigger that stops a run because it is done


class State(StrEnum):
    """How a member stands."""

    WAITING = "waiting"
    RUNNING = "running"
    INTERRUPTED = "interrupted"  # stopped before its end, by a signal or with its machine; it can go on
    FAILED = "failed"
    PRUNED = "pruned"  # collapsed: stopped by a trigger or a guard, or with a loss that is no number
    FINISHED = "finished"


SETTLED = (State.FINISHED, State.PRUNED)  # run again, they would do the same again


@dataclass(frozen=True)
class Owner:
    """The process that runs a member."""

    host: str
    pid: int
    born: str  # tells it from a later process of the same number
    job: str  # SLURM's number; empty outside

    @classmethod
    def this(cls) -> Owner:
        return cls(socket.gethostname(), os.getpid(), _birth(os.getpid()), os.environ.get("SLURM_JOB_ID", ""))

    def alive(self) -> bool:
        """Whether it still runs, as far as one can tell from here: a process of another host that is no SLURM job
        counts as gone."""
        if self.host == socket.gethostname():
            return _birth(self.pid) == self.born != ""
        if self.job and shutil.which("squeue"):
            asked = subprocess.run(
                ["squeue", "-h", "-j", self.job, "-t", "RUNNING,COMPLETING", "-o", "%i"],
                capture_output=True,
                text=True,
                check=False,
            )
            return bool(asked.stdout.strip())
        return False


def _birth(pid: int) -> str:
    """When a process started, in clock ticks since boot; empty if there is none.  See proc(5)."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return told.rpartition(")")[2].split()[19]


@dataclass(frozen=True)
class Member:
    """What `member.json` says."""

    directory: Path
    number: int
    overrides: tuple[str, ...]
    state: State = State.WAITING
    cause: str = ""  # of a failure, in one line
    owner: Owner | None = None

    def write(self) -> None:
        """Replace the file, atomically."""
        self.directory.mkdir(parents=True, exist_ok=True)
        told = {name: value for name, value in asdict(self).items() if name != "directory"}
        fresh = self.directory / f".{MEMBER}.{os.getpid()}"
        fresh.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        fresh.replace(self.directory / MEMBER)

    def at(self, state: State, cause: str = "") -> Member:
        """The same member in another state; of a running one, this process is the owner."""
        return replace(self, state=state, cause=cause, owner=Owner.this() if state is State.RUNNING else None)


def read(directory: Path) -> Member | None:
    """A member as it is now; None if the directory is not one's."""
    try:
        told = json.loads((directory / MEMBER).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    owner = Owner(**told["owner"]) if told["owner"] else None
    state = State(told["state"])
    if state is State.RUNNING and not (owner and owner.alive()):
        state = State.INTERRUPTED
    return Member(directory, told["number"], tuple(told["overrides"]), state, told["cause"], owner)


def members(sweep_dir: Path) -> list[Member]:
    """All members of a sweep, by number."""
    found = (read(path.parent) for path in sweep_dir.glob(f"*/{MEMBER}"))
    return sorted((member for member in found if member), key=lambda member: member.number)


# -- what its run has come to ----------------------------------------------------------------


@dataclass(frozen=True)
class Progress:
    """What the files of a run say."""

    step: int = 0
    seconds: float = 0.0  # of all steps, those before an interruption included
    objective: float | None = None
    interval: tuple[float, float] | None = None  # of the objective, 95%
    last: dict[str, Any] = field(default_factory=dict)  # the row of the last step


def progress(directory: Path, objective: str) -> Progress:
    """Read `metrics.jsonl`: nothing that was measured on the test role stands there.

    Args:
        objective: "best" or "last", as `sweep.objective`.
    """
    rows = [row for row in read_rows(directory / "metrics.jsonl") if row["step"]]
    if not rows:
        return Progress()
    validated = [row for row in rows if row.get(MEASURE) is not None]
    value, interval = None, None
    if validated:
        chosen = validated[-1] if objective == "last" else max(validated, key=lambda row: row[MEASURE])
        value = chosen[MEASURE]
        low, high = chosen.get(f"{MEASURE}_low"), chosen.get(f"{MEASURE}_high")
        interval = None if low is None or high is None else (low, high)
    seconds = sum(row.get("time/step") or 0.0 for row in rows)
    return Progress(rows[-1]["step"], seconds, value, interval, rows[-1])


def collapse(directory: Path) -> str:
    """Why the run that has ended here without an error is worth nothing; empty if it is sound."""
    last = progress(directory, "last").last
    if LOSS in last and last[LOSS] is None:
        return f"{LOSS} is not finite at step {last['step']}"
    stop = _cause(directory, "stop")
    return "" if HARMLESS in stop else stop


def aborted(directory: Path) -> str:
    """Which guard has given the run up that has ended here with an exit code; empty if none has."""
    return _cause(directory, "abort")


def _cause(directory: Path, event: str) -> str:
    """The cause of an event of a run, empty if there was none; `stop` and `abort` happen once."""
    rows = read_rows(directory / "events.jsonl")
    return next((last_line(row["cause"]) for row in rows if row["event"] == event), "")


def last_line(text: str) -> str:
    """The line of a message or a traceback that names the cause."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Exit|Interrupt)\b", line)]
    return (named or lines or [""])[-1].removeprefix("rlvr train: ")[:300]


def swept(found: Sequence[Member]) -> list[str]:
    """The keys by which members differ; all keys of a member that is alone."""
    told = [values(member) for member in found]
    keys = dict.fromkeys(key for one in told for key in one if not key.startswith(("run.", "sweep.", "hydra")))
    return [key for key in keys if len(told) == 1 or len({one.get(key) for one in told}) > 1]


def values(member: Member) -> dict[str, str]:
    """The overrides of a member, by key."""
    return {key.lstrip("+"): value for key, _, value in (o.partition("=") for o in member.overrides)}
