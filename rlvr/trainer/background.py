"""One job at a time, on a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Background:
    """Runs a job beside the loop and keeps its error until it is asked for.

    The thread does not keep the process alive: who starts a job also waits for it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.error: Exception | None = None
        self.seconds = 0.0  # the longest that a job has taken
        self._thread: threading.Thread | None = None

    def start(self, job: Callable[[], None]) -> None:
        """Begin; the job before has been waited for."""
        assert self._thread is None

        def run() -> None:
            start = time.perf_counter()
            try:
                job()
            except Exception as error:
                self.error = error
            self.seconds = max(self.seconds, time.perf_counter() - start)

        self._thread = threading.Thread(target=run, name=self.name, daemon=True)
        self._thread.start()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the job, if there is one; whether it is over.

        Args:
            timeout: seconds.
        """
        if self._thread is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():
                return False
        self._thread = None
        return True
