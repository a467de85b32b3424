"""One execution, seen from the process that watches it.

Time is the program's own: what it computes and what it sleeps, without the time that it was ready to run and other
processes had the processor.  So a verdict does not depend on the load of the machine.
"""

import os
import select
import signal
import time
import traceback
from typing import Any

from . import kernel, program

_TAIL = 500  # characters of standard error that are kept
_PAUSE = 0.05  # seconds before a program that seemed to be out of time is looked at again


def execute(request: dict[str, Any], jail: Any) -> dict[str, Any]:
    """Run `code` with `stdin`, or the function of `call`, under `limits`.

    Returns `ended` (exit, time, output, starved), `code` (exit code; a signal as a negative number), `stdout`,
    `stderr` (its end), `result` (JSON text of the function's value, or None) and `seconds` (own time).

    Raises:
        OSError: the program could not be started.
    """
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)  # the program may not look into this process
    pipes = {name: os.pipe() for name in ("stdout", "stderr", "result", "ready")}
    inputs = _file(request["stdin"].encode())
    child = os.fork()
    if child == 0:
        try:
            program.main(request, jail, inputs, {name: ends[1] for name, ends in pipes.items()})
        except BaseException:
            traceback.print_exc()  # why it was not started
        finally:
            os._exit(1)
    os.close(inputs)
    for _, end in pipes.values():
        os.close(end)
    started = os.read(pipes["ready"][0], 1)
    watch = _Watch(child, {name: ends[0] for name, ends in pipes.items() if name != "ready"}, request["limits"])
    ended = watch.run()
    seconds = watch.own_seconds()
    _, status = os.waitpid(child, 0)
    texts = {name: bytes(data).decode(errors="replace") for name, data in watch.data.items()}
    if not started:
        raise OSError(f"the program was not started: {texts['stderr'][-_TAIL:]}")
    code = os.waitstatus_to_exitcode(status)
    if ended == "exit" and code == -signal.SIGXCPU:  # threads that compute at the same time
        ended = "time"
    return texts | {
        "ended": ended,
        "code": code,
        "stderr": texts["stderr"][-_TAIL:],
        "result": texts["result"] if request["call"] else None,
        "seconds": seconds,
    }


class _Watch:
    """Collects the output of a process until it ends or has to be ended."""

    def __init__(self, pid: int, pipes: dict[str, int], limits: dict[str, Any]) -> None:
        self.pid, self.limits = pid, limits
        self.data = {name: bytearray() for name in pipes}
        self.start, self._before, self._late = time.monotonic(), _waited(pid), 0.0
        self._names = {descriptor: name for name, descriptor in pipes.items()}
        self._end = os.pidfd_open(pid)
        self._poll = select.poll()
        for descriptor in (*self._names, self._end):
            self._poll.register(descriptor, select.POLLIN)

    def own_seconds(self) -> float:
        """Time since the start, less what the program waited for a processor, and this process to notice its end."""
        return max(0.0, time.monotonic() - self.start - (_waited(self.pid) - self._before) - self._late)

    def run(self) -> str:
        """Wait for the end and say what it was; the process is a zombie then."""
        ended = self._until_end()
        if ended != "exit":
            os.kill(self.pid, signal.SIGKILL)
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        return ended

    def _until_end(self) -> str:
        alive, look, pause = True, 0.0, _PAUSE
        while alive:
            elapsed = time.monotonic() - self.start
            if elapsed >= self.limits["patience"]:
                return "starved"
            left = max(self.limits["seconds"] - self.own_seconds(), look - elapsed)
            if left <= 0:
                if self._is_out_of_time():
                    return "time"
                look, pause = elapsed + pause, 2 * pause  # a program that is stopped too often gets nowhere
                continue
            before = _waited(os.getpid())
            for descriptor, _ in self._poll.poll(1000 * min(left, self.limits["patience"] - elapsed) + 1):
                if descriptor == self._end:
                    alive, self._late = False, _waited(os.getpid()) - before
                else:
                    self._receive(descriptor)
            if self._too_much():
                return "output"
        while self._names and not self._too_much():  # what it had written; nobody else holds these pipes
            self._receive(next(iter(self._names)))
        return "output" if self._too_much() else "exit"

    def _is_out_of_time(self) -> bool:
        """Look again with the program stopped: the kernel counts a wait when it is over, and to stop it must run."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if self.own_seconds() >= self.limits["seconds"]:
            return True
        os.kill(self.pid, signal.SIGCONT)
        return False

    def _receive(self, descriptor: int) -> None:
        part = os.read(descriptor, 1 << 16)
        self.data[self._names[descriptor]] += part
        if not part:
            self._poll.unregister(descriptor)
            del self._names[descriptor]

    def _too_much(self) -> bool:
        return any(len(data) > self.limits["output"] for data in self.data.values())


def _waited(pid: int) -> float:
    """Seconds that a living thread of a process was ready to run and had to wait: the most of any.

    Not their sum, which a program could drive up with many threads that sleep and wake together.
    """
    nanoseconds = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
                nanoseconds = max(nanoseconds, int(file.read().split()[1]))
        except (FileNotFoundError, ProcessLookupError):  # it has ended, or the kernel does not count
            continue
    return nanoseconds / 1e9


def _file(data: bytes) -> int:
    """A file without a name that holds `data`, to be read from its start; a pipe would hold 64 KiB only."""
    descriptor = os.memfd_create("stdin")
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
