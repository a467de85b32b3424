"""A rank that hangs is named, with its phase, instead of leaving the others to wait in silence."""

import contextlib
import faulthandler
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

HUNG = 124  # the exit code, as of timeout(1)
WRITE_EVERY = 0.05  # seconds between two writes of the state file, at least


@dataclass(frozen=True)
class State:
    """Where a rank is."""

    rank: int
    phase: str
    count: int  # phases entered so far; ranks run the same phases, so the smallest count is behind
    since: float  # seconds since the epoch


class Watchdog:
    """Ends the process, with a diagnosis, when a phase lasts longer than `timeout`.

    Each rank tells the others its phase through `directory/rank<r>.json`.  All file work is done by the watching
    thread, so that `enter` costs nothing.
    """

    def __init__(
        self,
        directory: Path,
        rank: int,
        size: int,
        timeout: float,
        on_hang: Callable[[str], None] = lambda diagnosis: None,
    ) -> None:
        """
        Args:
            directory: shared by the ranks of the run; made if it does not exist.
            timeout: seconds.
            on_hang: told the diagnosis before the process ends.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self.size, self.timeout, self.on_hang = directory, size, timeout, on_hang
        self._state = State(rank, "start", 0, time.time())
        self._entered = time.monotonic()
        self._changed, self._stopped = threading.Event(), threading.Event()
        self._write()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._thread.start()

    def enter(self, phase: str) -> None:
        """This rank begins `phase`; the clock of the timeout starts again."""
        self._state = State(self._state.rank, phase, self._state.count + 1, time.time())
        self._entered = time.monotonic()
        self._changed.set()

    def stop(self) -> None:
        """Watch no longer."""
        self._stopped.set()
        self._changed.set()
        self._thread.join()

    def diagnosis(self) -> str:
        """Which rank is in which phase since when, and who is behind."""
        states = {state.rank: state for state in map(self._read, range(self.size)) if state}
        states[self._state.rank] = self._state
        return describe(states, self.size, time.time())

    def _watch(self) -> None:
        while not self._stopped.is_set():
            left = self.timeout - (time.monotonic() - self._entered)
            if left <= 0:
                self._end()
            if self._changed.wait(left):
                self._changed.clear()
                with contextlib.suppress(OSError):  # a full disk must not end the watch; who writes more will tell
                    self._write()
                self._stopped.wait(WRITE_EVERY)

    def _write(self) -> None:
        path = self._path(self._state.rank)
        fresh = path.with_suffix(".tmp")
        fresh.write_text(json.dumps(asdict(self._state)), encoding="utf-8")
        fresh.replace(path)

    def _read(self, rank: int) -> State | None:
        try:
            return State(**json.loads(self._path(rank).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None

    def _path(self, rank: int) -> Path:
        return self.directory / f"rank{rank}.json"

    def _end(self) -> None:
        """Say what is known and leave; the main thread may be stuck where no exception reaches it."""
        diagnosis = f"no progress on rank {self._state.rank} for {self.timeout:g} s\n{self.diagnosis()}"
        try:
            print(diagnosis, file=sys.stderr, flush=True)
            faulthandler.dump_traceback(all_threads=True)
            with (self.directory / "hang.txt").open("a", encoding="utf-8") as file:
                file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {diagnosis}\n")
            self.on_hang(diagnosis)
        finally:
            os._exit(HUNG)


def describe(states: dict[int, State], size: int, now: float) -> str:
    """Put the ranks' states into words: one line per rank, then the ranks that the others wait for.

    Args:
        states: by rank; a rank that has not reported is missing.
        size: number of ranks.
        now: seconds since the epoch.
    """
    told = {rank: f"in {s.phase} since {now - s.since:.0f} s" for rank, s in sorted(states.items())}
    told |= {rank: "not started, or without a word" for rank in range(size) if rank not in states}
    lines = [f"  rank {rank}: {where}" for rank, where in told.items()]
    most = max(state.count for state in states.values())
    ahead = [state.phase for state in states.values() if state.count == most]
    behind = [
        f"rank {rank} is {where}" for rank, where in told.items() if rank not in states or states[rank].count < most
    ]
    if behind:
        lines.append(f"{'; '.join(behind)}; the others wait in {', '.join(sorted(set(ahead)))}")
    elif size > 1:
        lines.append(f"all ranks are in {ahead[0]}: none is behind")
    return "\n".join(lines)
