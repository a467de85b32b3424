"""Named timers: where the seconds of a step went."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Clock:
    """Adds up wall-clock seconds by name; a name used inside another is written "outer/inner"."""

    def __init__(self, on_enter: Callable[[str], None] = lambda name: None) -> None:
        """`on_enter` is told the full name of every phase that begins."""
        self.seconds: dict[str, float] = {}
        self._open: list[str] = []
        self.on_enter = on_enter

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        self._open.append(name)
        full = "/".join(self._open)
        self.on_enter(full)
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[full] = self.seconds.get(full, 0.0) + time.perf_counter() - start
            self._open.pop()

    def take(self) -> dict[str, float]:
        """The seconds so far, and start again from zero."""
        seconds, self.seconds = self.seconds, {}
        return seconds
