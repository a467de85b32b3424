"""When a run must leave before its last step: it was told to by a signal, or the time of its job runs out."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import FrameType, TracebackType

REQUEUE = 85  # the exit code of a run that has saved and wants to be started again
SIGNALS = (signal.SIGTERM, signal.SIGUSR2)  # SIGUSR1 is left alone: NCCL and debuggers use it
ECHO = 2.0  # seconds within which a second signal is the first one, handed on by a launcher that got it as well
JOB_END = "RLVR_JOB_END"  # environment variable: when the job ends, in seconds since the epoch
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"  # environment variable: where a rank says why it ends, to whoever launched it
SAMPLING = frozenset({"generate", "verify", "transfer", "store", "await"})  # phases of a step that can be abandoned


class Leave(AbstractContextManager["Leave"]):
    """Knows, on one rank, whether to go on; ranks agree on what they do about it.

    While it is entered, a first signal is noted and a second one ends the process at once.  Only this process notes
    it: one that was forked from it dies of the signal, as it would have without us.
    """

    def __init__(self, end: float | None = None, margin: float = 0.0, now: Callable[[], float] = time.time) -> None:
        """
        Args:
            end: when the job ends, in seconds since the epoch; None if it does not.
            margin: seconds before `end` at which everything must be done.
            now: the clock.
        """
        self._last = None if end is None else end - margin
        self._now, self._pid = now, os.getpid()
        self._signal: signal.Signals | None = None
        self._heard = 0.0
        self._before: dict[signal.Signals, object] = {}
        self._step = self._rest = self._save = 0.0  # the longest so far, in seconds

    def __enter__(self) -> Leave:
        self._before = {number: signal.signal(number, self._hear) for number in SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler or signal.SIG_DFL)  # type: ignore[arg-type]

    def measured(self, step: float, phases: Mapping[str, float]) -> None:
        """Note a step: its seconds, and those of its phases, as `Clock.take` returns them."""
        self._step = max(self._step, step)
        self._rest = max(self._rest, sum(s for name, s in phases.items() if name not in SAMPLING and "/" not in name))

    def saved(self, seconds: float) -> None:
        """Note how long a checkpoint took."""
        self._save = max(self._save, seconds)

    def sampling_is_over(self) -> bool:
        """Whether this rank should stop sampling for a step, which will be done again after the restart."""
        return self._signal is not None or self._late(self._rest)

    def no_more_steps(self) -> bool:
        """Whether no further step should begin on this rank."""
        return self._signal is not None or self._late(self._step)

    def why(self) -> str | None:
        """The reason, in words; None on a rank that has none of its own."""
        if self._signal:
            return self._signal.name
        if self._last is not None and self._late(self._step):
            left = max(0.0, self._last - self._now())
            return f"{left:.0f} s are left, a step takes {self._step:.0f} s and a checkpoint {self._save:.0f} s"
        return None

    @property
    def signalled(self) -> bool:
        """Whether this rank was sent a signal."""
        return self._signal is not None

    def _late(self, needed: float) -> bool:
        return self._last is not None and self._now() + needed + self._save >= self._last

    def _hear(self, number: int, frame: FrameType | None) -> None:
        again = self._signal is not None and time.monotonic() - self._heard > ECHO
        if again or os.getpid() != self._pid:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif self._signal is None:
            self._signal, self._heard = signal.Signals(number), time.monotonic()


def job_end(env: Mapping[str, str]) -> float | None:
    """When the job ends, in seconds since the epoch, as the launcher has found out; None if nobody knows of an end."""
    told = env.get(JOB_END)
    return float(told) if told else None
