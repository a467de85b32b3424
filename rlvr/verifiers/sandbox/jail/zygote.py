"""The process that is forked for every execution; it never sees what is executed.

A request is read by the process that watches the program, so that no later program finds anything of an earlier one in
the memory that it inherits.
"""

import gc
import importlib
import os
import select
import signal
import sys
import threading
from typing import Any

from . import kernel, messages, supervisor

# what programs import most; it is paid here once
_MODULES = (
    "bisect", "collections", "copy", "datetime", "decimal", "fractions", "functools", "heapq", "io", "itertools",
    "json", "math", "operator", "random", "re", "statistics", "string", "time", "traceback", "typing",
)  # fmt: skip
_THREADS = 256  # of a program
_STACK = 8 << 20  # bytes of a thread's stack, unless the program asks for more


def main(backend: str) -> None:
    """Set up `backend` (a module of this package), say so, and serve requests until the parent is gone."""
    try:
        jail = importlib.import_module(f"jail.{backend}")
        _settle(jail)
    except OSError as error:
        messages.write(1, {"error": f"{error.strerror or error}"})
        return
    messages.write(1, {"ready": True})
    requests = select.poll()
    requests.register(0, select.POLLIN)
    while requests.poll()[0][1] & select.POLLIN:
        try:
            child = os.fork()
        except OSError as error:
            messages.write(1, {"error": f"{error.strerror}"})
            return
        if child == 0:
            _serve(jail)
        _, status = os.waitpid(child, 0)
        if status:  # the request may be half read: its sender must start anew
            sys.exit(1)


def _settle(jail: Any) -> None:
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # if memory runs out, generated programs go before the trainer does
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process of a process table gets only what it handles
    for name in _MODULES:
        importlib.import_module(name)
    threading.stack_size(_STACK)
    parent = os.getppid()
    jail.prepare()
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)  # after a change of user, which resets it
    if os.getppid() != parent:
        sys.exit(1)
    os.environ.clear()
    gc.collect()
    gc.freeze()


def _serve(jail: Any) -> None:
    """One execution, in a process of its own; never returns."""
    code = 1
    try:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        tasks = _tasks() + _THREADS
        jail.enter()
        request = messages.read(0)
        request["limits"]["tasks"] = tasks
        messages.write(1, supervisor.execute(request, jail))
        code = 0
    except (OSError, MemoryError, EOFError, ValueError) as error:
        messages.write(1, {"error": f"{type(error).__name__}: {error}"})
    finally:
        os._exit(code)


def _tasks() -> int:
    """All threads of the machine: the limit counts those of a user, whose other processes must not use it up."""
    with open("/proc/loadavg") as file:
        return int(file.read().split()[3].partition("/")[2])
