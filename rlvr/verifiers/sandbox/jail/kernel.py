"""System calls that the standard library of Python 3.11 does not offer."""

import ctypes
import os
from typing import Any

NOBODY = 65534  # user and group that a privileged process turns into
CAP_DAC_READ_SEARCH = 2  # read any file that Landlock lets through

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND, REC, PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_KEEPCAPS, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 4, 8, 22, 38
_CAPABILITY_VERSION_3 = 0x20080522
_DETACH = 2

_libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: Any) -> int:
    """Call a function of the C library; integers are passed as longs.  Raises OSError with its name and reason."""
    longs = [ctypes.c_ulong(value) if isinstance(value, int) else value for value in arguments]
    result: int = getattr(_libc, name)(*longs)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def syscall(number: int, *arguments: Any) -> int:
    """Call the kernel by number, for what the C library does not wrap."""
    return call("syscall", number, *arguments)


def prctl(option: int, value: Any, more: Any = 0) -> None:
    call("prctl", option, value, more, 0, 0)


def unshare(flags: int) -> None:
    call("unshare", flags)


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    texts = [text.encode() if text else None for text in (source, target, kind)]
    try:
        call("mount", *texts, flags, options.encode() if options else None)
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror} ({source} on {target})") from None


def unmount(target: str) -> None:
    call("umount2", target.encode(), _DETACH)


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _Sets(ctypes.Structure):
    _fields_ = [("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32)]


def keep_capabilities(capabilities: set[int]) -> None:
    """Give up all capabilities of this process but these (numbers below 32)."""
    bits = sum(1 << number for number in capabilities)
    sets = (_Sets * 2)(_Sets(bits, bits, 0), _Sets(0, 0, 0))
    call("capset", ctypes.byref(_Header(_CAPABILITY_VERSION_3, 0)), ctypes.byref(sets))


def become_nobody() -> None:
    """Turn root into an ordinary user with no group; capabilities stay permitted until `keep_capabilities`."""
    prctl(PR_SET_KEEPCAPS, 1)
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    prctl(PR_SET_DUMPABLE, 1)  # the change of user took it away, and with it the right to write /proc/self/uid_map
