"""Named timers: where the seconds of a step went, and those before the first one."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class Clock:
    """Adds up wall-clock seconds by name; a name used inside another, by the same thread, is written "outer/inner"."""

    def __init__(self, on_enter: Callable[[str], None] = lambda name: None) -> None:
        """`on_enter` is told the full name of every phase that begins."""
        self.seconds: dict[str, float] = {}
        self._own = threading.local()
        self.on_enter = on_enter

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        opened: list[str] = self._own.__dict__.setdefault("opened", [])
        opened.append(name)
        full = "/".join(opened)
        self.on_enter(full)
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[full] = self.seconds.get(full, 0.0) + time.perf_counter() - start
            opened.pop()

    def take(self) -> dict[str, float]:
        """The seconds so far, and start again from zero; no other thread has a phase open."""
        seconds, self.seconds = self.seconds, {}
        return seconds


def process_seconds() -> float:
    """How long this process has been running, what it took to import its libraries included; see proc(5)."""
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return float(Path("/proc/uptime").read_text().split()[0]) - started
