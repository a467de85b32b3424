"""The filter on system calls: which, and with which arguments.  Assembled here, so that libseccomp is not needed."""

import ctypes
import errno
import struct
from dataclasses import dataclass

from . import kernel, syscalls

ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _EQUAL, _AND, _RETURN = 0x20, 0x15, 0x54, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data

_THREAD = 0x10000  # CLONE_THREAD
_NAMESPACES = 0x7E020080  # all CLONE_NEW*
_NOT_READING = 0o1103  # O_WRONLY, O_RDWR, O_CREAT, O_TRUNC
_FCNTL = (0, 1, 2, 3, 4, 5, 6, 7, 1030)  # F_DUPFD to F_SETLKW, F_DUPFD_CLOEXEC: no owner, no signals
_IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX
_PRCTL = (15, 16)  # PR_SET_NAME, PR_GET_NAME


@dataclass(frozen=True)
class Rule:
    """Allowed if the argument, masked, is one of the values."""

    argument: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF


def rules(own_pid: int, writing: bool) -> dict[str, Rule]:
    """The rules for calls with arguments; a program may start threads, and signal nobody but itself."""
    reads = Rule(0, (0,), 0) if writing else Rule(1, (0,), _NOT_READING)
    return {
        "open": reads,
        "openat": reads if writing else Rule(2, (0,), _NOT_READING),
        "ioctl": Rule(1, _IOCTL),
        "clone": Rule(0, (_THREAD,), _THREAD | _NAMESPACES),
        "kill": Rule(0, (own_pid,)),
        "tgkill": Rule(0, (own_pid,)),
        "fcntl": Rule(1, _FCNTL),
        "prctl": Rule(0, _PRCTL),
        "prlimit64": Rule(0, (0,)),
    }


def program(machine: str, own_pid: int, writing: bool) -> bytes:
    """The filter as instructions of struct sock_filter; what it does not allow fails with EPERM."""
    allowed = syscalls.reading(machine) | (syscalls.writing(machine) if writing else {})
    checked = syscalls.checked(machine)
    code = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, syscalls.ARCHITECTURES[machine]),
        (_RETURN, 0, 0, KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    for number in allowed.values():
        code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, ALLOW)]
    for name, rule in rules(own_pid, writing).items():
        if name in checked:
            body = _body(rule)
            code += [(_EQUAL, 0, len(body), checked[name]), *body]
    # the C library takes ENOSYS for "an old kernel" and starts the thread with clone, whose flags can be checked
    code += [(_EQUAL, 0, 1, checked["clone3"]), (_RETURN, 0, 0, ERRNO | errno.ENOSYS)]
    code.append((_RETURN, 0, 0, ERRNO | errno.EPERM))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


def _body(rule: Rule) -> list[tuple[int, int, int, int]]:
    # the kernel reads 32 bits of all these arguments, so the low word is the whole truth
    body = [(_LOAD, 0, 0, _ARGUMENTS + 8 * rule.argument), (_AND, 0, 0, rule.mask)]
    for value in rule.values:
        body += [(_EQUAL, 0, 1, value), (_RETURN, 0, 0, ALLOW)]
    return [*body, (_RETURN, 0, 0, ERRNO | errno.EPERM)]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def install(code: bytes) -> None:
    """Filter this process and its threads from now on."""
    buffer = ctypes.create_string_buffer(code, len(code))
    described = _Program(len(code) // 8, ctypes.cast(buffer, ctypes.c_void_p))
    kernel.prctl(kernel.PR_SET_SECCOMP, 2, ctypes.byref(described))
