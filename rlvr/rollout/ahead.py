"""Rollouts ahead of the updates: the next step's are drawn by a thread while this one's are learned from."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace

import torch

from rlvr.clock import Clock
from rlvr.engine.engines import Engines
from rlvr.rollout.collect import Collected, Collector


class Rollouts:
    """Hands out the rollouts of each step.

    What is drawn ahead is a function of the weights that the sampler holds, the stream's position and seeds, like all
    rollouts, and never of how fast the thread was: it is waited for before anything else may touch weights or sampler.
    """

    def __init__(self, collector: Collector, engines: Engines, device: torch.device, clock: Clock) -> None:
        self.collector, self.engines, self.device, self.clock = collector, engines, device, clock
        self._thread: ThreadPoolExecutor | None = (
            None  # one for the whole run: its pool of OpenMP threads stays with it
        )
        self._ahead: Future[Collected] | None = None

    def take(self, cursor: int, step: int) -> Collected:
        """A step's rollouts: what was drawn ahead, or else drawn now from the policy of now.

        Args:
            cursor: stream position of the first prompt.
            step: number of the step, counted from 0.

        Raises:
            Abandoned: if the run must leave.
            RuntimeError: as `Collector.roll_out`, and what ended the thread.
        """
        if self._ahead is None:
            return self.collector.collect(cursor, step)
        collected, self._ahead = self._ahead.result(), None
        return self.collector.noted(replace(collected, staleness=1), step)

    @contextmanager
    def ahead(self, cursor: int, step: int) -> Iterator[None]:
        """Draw a step's rollouts beside what is done inside, from the policy as it is on entry; `take` returns them.

        An error of the thread is raised by `take`: the step that is learned from inside has nothing to do with it.
        """
        with self.engines.pinned():
            self._ahead = self._started().submit(self._draw, cursor, step)
            try:
                yield
            except BaseException:
                self.collector.drawer.unwanted = True
                raise
            finally:
                with self.clock("await"):
                    wait([self._ahead])
                    self._synchronize()

    def drop(self) -> None:
        """Forget what was drawn ahead: `take` draws it anew."""
        self._ahead = None

    def close(self) -> None:
        """End the thread."""
        if self._thread:
            self._thread.shutdown()

    def _draw(self, cursor: int, step: int) -> Collected:
        with self.clock("ahead/collect"):
            return self.collector.roll_out(cursor, step)

    def _started(self) -> ThreadPoolExecutor:
        """The thread, once the device has done all that this one has asked of it."""
        if self._thread is None:
            told = (self.device, torch.get_num_threads())
            self._thread = ThreadPoolExecutor(1, "rollouts", initializer=_settle, initargs=told)
        self._synchronize()
        return self._thread

    def _synchronize(self) -> None:
        """The streams of the two threads do not wait for each other: the sampler's weights belong to one at a time."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _settle(device: torch.device, threads: int) -> None:
    """The number of CPU threads, the device and its stream belong to each thread of Python for itself."""
    torch.set_num_threads(threads)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.cuda.set_stream(torch.cuda.Stream(device))
