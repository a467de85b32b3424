"""The backend without namespaces: Landlock lets a program read the interpreter's library and nothing else.

There is no directory to write to: without a file system of its own its size could not be limited.
"""

import ctypes
import os

from . import kernel, library, syscalls

WRITING = False
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}  # version of Landlock: number of rights on files that it knows
_VERSION, _PATH_BENEATH = 1, 1

_ruleset = -1


class _Attributes(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def prepare() -> None:
    """Once, in the zygote: the rules, and an ordinary user.  Raises OSError where the kernel has no Landlock."""
    global _ruleset
    numbers = syscalls.setup(syscalls.machine())
    version = kernel.syscall(numbers["landlock_create_ruleset"], None, 0, _VERSION)
    rights = max(count for since, count in _RIGHTS.items() if since <= version)
    attributes = _Attributes((1 << rights) - 1, 3, 3)  # TCP: bind, connect; scoped: abstract sockets, signals
    size = 8 if version < 4 else 16 if version < 6 else 24
    _ruleset = kernel.syscall(numbers["landlock_create_ruleset"], ctypes.byref(attributes), size, 0)
    for path in [*library.readable(), *library.DEVICES]:
        allowed = _READ_FILE | _READ_DIR if os.path.isdir(path) else _READ_FILE
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = ctypes.byref(_Beneath(allowed, parent))
        kernel.syscall(numbers["landlock_add_rule"], _ruleset, _PATH_BENEATH, rule, 0)
        os.close(parent)
    step_down()


def step_down() -> None:
    """Stop being root, if we are; keep only the right to read, where the library lies in a private directory."""
    if os.geteuid() == 0:
        kernel.become_nobody()
        try:
            os.stat(os.__file__)
            kernel.keep_capabilities(set())
        except PermissionError:  # Landlock still decides what may be read
            kernel.keep_capabilities({kernel.CAP_DAC_READ_SEARCH})


def enter() -> None:
    """Once per execution, in the process that will watch the program: nothing to do."""


def confine() -> None:
    """Once per execution, in the program's process."""
    kernel.syscall(syscalls.setup(syscalls.machine())["landlock_restrict_self"], _ruleset, 0)
