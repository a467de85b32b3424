"""One execution, seen from the process that is confined and then becomes the program."""

import atexit
import json
import math
import os
import random
import resource
import signal
import sys
import threading
import traceback
import types
import typing
from collections.abc import Callable
from typing import Any

from . import kernel, seccomp, syscalls

_FILE, _FILES, _STACK = 16 << 20, 64, 100 << 20  # bytes of a file, open files, bytes of the main thread's stack
_LAST = 1 << 16  # above any descriptor in use

_exit, _write, _dumps = os._exit, os.write, json.dumps  # before a program can replace them


def main(request: dict[str, Any], jail: Any, inputs: int, pipes: dict[str, int]) -> None:
    """Confine this process and run the program; ends the process."""
    call, result = request["call"], pipes["result"]
    module = _module("__main__" if call is None else "solution")
    _wire(inputs, pipes)
    _limit(request["limits"])
    _confine(jail)
    _write(pipes["ready"], b"r")
    os.closerange(3, result)
    os.closerange(result + (call is not None), _LAST)

    def program() -> None:
        exec(compile(request["code"], "<program>", "exec", dont_inherit=True), module.__dict__)

    def function() -> None:
        program()
        _send(result, _dumps(_named(module, call["name"])(*call["args"], **call["kwargs"])))

    if call is None:
        _exit(_finished(_status(program)))
    _exit(_status(function))


def _wire(inputs: int, pipes: dict[str, int]) -> None:
    """Standard streams; what they were here, the pipes of the zygote, is closed by this."""
    for source, target in ((inputs, 0), (pipes["stdout"], 1), (pipes["stderr"], 2)):
        os.dup2(source, target)
    sys.stdin = os.fdopen(0, encoding="utf-8", errors="replace", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]


def _limit(limits: dict[str, Any]) -> None:
    seconds, memory, tasks = math.ceil(limits["seconds"]), limits["memory"] << 20, limits["tasks"]
    for kind, soft, hard in (
        (resource.RLIMIT_AS, memory, memory),
        (resource.RLIMIT_CPU, seconds + 1, seconds + 2),  # the watcher ends it before, unless threads compute at once
        (resource.RLIMIT_FSIZE, _FILE, _FILE),
        (resource.RLIMIT_NOFILE, _FILES, _FILES),
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_STACK, _STACK, _STACK),
        (resource.RLIMIT_NPROC, tasks, tasks),
    ):
        ceiling = resource.getrlimit(kind)[1]
        within = [value if ceiling == resource.RLIM_INFINITY else min(value, ceiling) for value in (soft, hard)]
        resource.setrlimit(kind, (within[0], within[1]))


def _confine(jail: Any) -> None:
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)  # or it could not open /dev/stdin
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    random.seed(0)  # the zygote's state is shared by all; a fixed one makes verdicts repeatable
    jail.confine()
    seccomp.install(seccomp.program(syscalls.machine(), os.getpid(), jail.WRITING))


def _module(name: str) -> types.ModuleType:
    """A module for the program; solutions in LeetCode's form use the names of typing without importing them."""
    for loaded in [loaded for loaded in sys.modules if loaded.partition(".")[0] == "jail"]:
        del sys.modules[loaded]
    module = types.ModuleType(name)
    sys.modules[name] = module
    sys.argv = ["program.py"]
    if name != "__main__":
        module.__dict__.update({public: getattr(typing, public) for public in typing.__all__})
    return module


def _named(module: types.ModuleType, name: str) -> Callable[..., Any]:
    """The function, or the method of that name of a class `Solution`."""
    if name in module.__dict__:
        found: Callable[..., Any] = module.__dict__[name]
        return found
    method: Callable[..., Any] = getattr(module.__dict__["Solution"](), name)
    return method


def _send(descriptor: int, text: str) -> None:
    rest = memoryview(text.encode())
    while rest:
        rest = rest[_write(descriptor, rest) :]


def _status(run: Callable[[], None]) -> int:
    """Run it and give the exit code that Python would give."""
    try:
        run()
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF
        print(error.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _finished(status: int) -> int:
    """What Python does at the end of a program: wait for threads, call exit handlers, flush."""

    def end() -> None:
        for thread in threading.enumerate():
            if thread is not threading.main_thread() and not thread.daemon:
                thread.join()
        atexit._run_exitfuncs()
        sys.stdout.flush()

    ended = _status(end)
    return status or ended
