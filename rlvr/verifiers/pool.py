"""Verifier processes with a wall clock per item; a hung one is killed and replaced, and only its item is lost.

Grading overlaps generation: `submit` never blocks, one thread per process moves the items, `gather` waits.
"""

import json
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rlvr.records import Verdict
from rlvr.verifiers.process import Died, Process, TimedOut

BATCH = 32  # most items per message: enough to hide the pipe, few enough to wait behind a hung one


@dataclass(frozen=True, kw_only=True)
class Job:
    """One response to grade."""

    verifier: str
    response: str
    answer: Any
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Item:
    ticket: int
    job: Job
    spec: str
    message: str  # what the worker is sent
    submitted: float


class VerifierPool:
    """`workers` verifier processes; each item may take `timeout` seconds of wall clock, or its verifier's `patience`.

    What cannot be judged (time-out, death of the process, exception of the verifier) comes back as a Verdict with
    `error` and is counted by cause; it is never a wrong answer.  Use as a context manager, or call `close`.
    """

    def __init__(self, workers: int, timeout: float) -> None:
        self.timeout = timeout
        self._lock = threading.RLock()
        self._work = threading.Condition(self._lock)  # something to do, or closed: the threads wait here
        self._done = threading.Condition(self._lock)  # something is finished, or closed: callers wait here
        self._waiting: deque[_Item] = deque()
        self._verdicts: dict[int, Verdict] = {}
        self._open: set[int] = set()
        self._tickets = 0
        self._specs: dict[str, None] = {}  # what `warm` asked for, in order
        self._ready: dict[str, list[str | None]] = {}  # verifier -> one entry per process: None, or why not
        self._processes: dict[str, Process] = {}  # by the name of the thread that talks to it
        self._closed = False
        self._broken: BaseException | None = None
        self.reset()
        self._threads = [
            threading.Thread(target=self._serve, name=f"verifier-{i}", daemon=True) for i in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> "VerifierPool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def warm(self, verifier: str, options: dict[str, Any] | None = None) -> None:
        """Build and self-check a verifier in every process, before the first item needs it.

        Raises:
            RuntimeError: it cannot be built or fails its self-check; the message says why.
        """
        spec = _spec(verifier, options or {})
        with self._lock:
            self._check_open()
            self._specs[spec] = None
            self._ready.setdefault(spec, [])
            self._work.notify_all()
            self._done.wait_for(lambda: self._broken or self._closed or len(self._ready[spec]) == len(self._threads))
            self._check_open()
            why = next((reason for reason in self._ready[spec] if reason), None)
        if why:
            raise RuntimeError(why)

    def submit(self, job: Job) -> int:
        """Queue a response; returns the ticket to gather it with.  Never blocks.

        Raises:
            TypeError: the answer is not a JSON value.
        """
        message = json.dumps([job.verifier, job.options, job.response, job.answer])
        with self._lock:
            self._check_open()
            ticket = self._tickets
            self._tickets += 1
            self._open.add(ticket)
            self._waiting.append(_Item(ticket, job, _spec(job.verifier, job.options), message, time.perf_counter()))
            self._work.notify()
        return ticket

    def gather(self, tickets: Iterable[int]) -> list[Verdict]:
        """The verdicts of `tickets`, in their order; blocks until all are there.  Each ticket is good for one gather.

        Raises:
            KeyError: a ticket that was never given or has been gathered.
        """
        tickets = list(tickets)
        with self._lock:
            if unknown := [ticket for ticket in tickets if ticket not in self._open]:
                raise KeyError(f"ticket {unknown[0]} was never given or has been gathered")
            for ticket in tickets:
                while ticket not in self._verdicts:
                    self._check_open()
                    self._done.wait()
            self._open.difference_update(tickets)
            return [self._verdicts.pop(ticket) for ticket in tickets]

    def stats(self) -> dict[str, float]:
        """Since the last reset: items `judged`, `unjudged`, `unjudged/<cause>`; sums of `queue_` and `busy_seconds`."""
        with self._lock:
            causes = {f"unjudged/{cause}": float(count) for cause, count in sorted(self._causes.items())}
            return {
                "judged": float(self._judged),
                "unjudged": float(sum(self._causes.values())),
                **causes,
                "queue_seconds": self._queue_seconds,
                "busy_seconds": self._busy_seconds,
            }

    def reset(self) -> None:
        """Start counting anew."""
        with self._lock:
            self._judged, self._causes = 0, Counter[str]()
            self._queue_seconds = self._busy_seconds = 0.0

    def close(self) -> None:
        """Kill the processes; items that are not judged yet are lost."""
        with self._lock:
            self._closed = True
            self._work.notify_all()
            self._done.notify_all()
            for process in self._processes.values():
                process.interrupt()
        for thread in self._threads:
            thread.join()

    def _check_open(self) -> None:
        if self._broken:
            raise RuntimeError("the verifier pool broke down") from self._broken
        if self._closed:
            raise RuntimeError("the verifier pool is closed")

    # One thread per process from here on.

    def _serve(self) -> None:
        """Judge until closed.  The thread starts its processes itself: they die with the thread that started them."""
        process, reported = None, set[str]()
        try:
            while True:
                batch = self._take(reported)
                if batch is None:
                    break
                if process is None or not process.alive:
                    if process is not None:
                        process.kill()
                    process = self._start()
                self._warm_all(process, reported)
                if batch and not self._judge(process, batch):
                    process.kill()
                with self._lock:
                    self._done.notify_all()
        except BaseException as error:
            with self._lock:
                self._broken = error
                self._done.notify_all()
            raise
        finally:
            if process is not None:
                process.kill()

    def _start(self) -> Process:
        process = Process()
        with self._lock:
            self._processes[threading.current_thread().name] = process
            if self._closed:
                process.interrupt()
        return process

    def _take(self, reported: set[str]) -> list[_Item] | None:
        """A fair share of what waits; [] where there is only a verifier to warm up; None when closed."""
        with self._lock:
            self._work.wait_for(lambda: bool(self._closed or self._waiting or self._specs.keys() - reported))
            if self._closed:
                return None
            share = min(BATCH, -(-len(self._waiting) // (2 * len(self._threads))))
            batch = [self._waiting.popleft() for _ in range(share)]
            now = time.perf_counter()
            self._queue_seconds += sum(now - item.submitted for item in batch)
            return batch

    def _warm_all(self, process: Process, reported: set[str]) -> None:
        """Warm up what `warm` asked for and this process has not got, and report each verifier once."""
        with self._lock:
            specs = list(self._specs)
        for spec in specs:
            why = process.warm(spec) if process.alive else "the process was lost"
            if spec not in reported:
                reported.add(spec)
                with self._lock:
                    self._ready[spec].append(why)
                    self._done.notify_all()

    def _judge(self, process: Process, batch: list[_Item]) -> bool:
        """Judge a batch; False if the process was lost, in which case the items behind the culprit wait again."""
        batch = self._usable(process, batch)
        if not process.alive:  # lost while a verifier was started
            self._wait_again(batch)
            return False
        done, lost, seconds, timeout = 0, None, 0.0, self.timeout
        try:
            process.send('{"items": [' + ", ".join(item.message for item in batch) + "]}")
            for item in batch:
                timeout = max(self.timeout, process.patience[item.spec])
                score, parts, error, answer, took = process.receive(timeout)
                self._settle(item, Verdict(score=score, parts=parts, error=error, answer=answer), took)
                done += 1
        except TimedOut:
            lost, seconds = f"timeout after {timeout:g} s", timeout
        except Died as error:
            lost = f"worker died: {error}"
        if lost is None:
            return True
        if done < len(batch):
            self._settle(batch[done], Verdict(score=None, error=lost), seconds)
        self._wait_again(batch[done + 1 :])
        return False

    def _usable(self, process: Process, batch: list[_Item]) -> list[_Item]:
        """The items whose verifier works in this process; the others are settled, with the reason."""
        usable = []
        for item in batch:
            why = process.warm(item.spec) if process.alive else None
            if why:
                self._settle(item, Verdict(score=None, error=f"not usable: {why}"), 0.0)
            else:
                usable.append(item)
        return usable

    def _wait_again(self, items: list[_Item]) -> None:
        with self._lock:
            self._waiting.extendleft(reversed(items))
            self._work.notify_all()

    def _settle(self, item: _Item, verdict: Verdict, seconds: float) -> None:
        with self._lock:
            self._verdicts[item.ticket] = verdict
            self._busy_seconds += seconds
            if verdict.error is None:
                self._judged += 1
            else:
                self._causes[_cause(verdict.error)] += 1


def _spec(verifier: str, options: dict[str, Any]) -> str:
    return json.dumps([verifier, options], sort_keys=True)


def _cause(error: str) -> str:
    """`timeout`, `worker died`, `not usable`, or the exception's type."""
    return "timeout" if error.startswith("timeout after") else error.partition(":")[0][:40]
