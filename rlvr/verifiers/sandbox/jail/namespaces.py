"""The strongest backend: a file system, process table and network of the program's own."""

import os
import signal

from . import kernel, library, syscalls

WRITING = True
_USER = 1000  # the program's user inside
_STAGE = "/sys"  # where the new root is put together: every machine has it, and nothing that is bound lies below it


def prepare() -> None:
    """Once, in the zygote: a new root with a read-only library, no network, a user without rights.

    Raises OSError where namespaces are not to be had.
    """
    apart = kernel.NEWNS | kernel.NEWNET | kernel.NEWIPC | kernel.NEWUTS
    if os.geteuid() == 0:
        # the root is built with root's rights; what a user namespace may mount is limited.  The program's user must
        # not be root outside, or the limit on its threads would not hold.
        kernel.unshare(apart)
        _build_root()
        kernel.become_nobody()
        kernel.keep_capabilities(set())
        _become_user(kernel.NEWUSER)
    else:
        _become_user(kernel.NEWUSER | apart)
        _build_root()


def enter() -> None:
    """Once per execution: become the first process of a new process table, with an empty /tmp.

    The caller's process waits here for the new one and ends as it ended.  Whatever is alive when the new one ends is
    killed by the kernel.
    """
    kernel.unshare(kernel.NEWPID | kernel.NEWNS)
    first = os.fork()
    if first:
        _, status = os.waitpid(first, 0)
        os._exit(1 if status else 0)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    strict = kernel.NOSUID | kernel.NODEV | kernel.NOEXEC
    kernel.mount("proc", "/proc", "proc", strict | kernel.RDONLY, "subset=pid")
    kernel.mount("tmpfs", "/tmp", "tmpfs", strict, "size=16m,nr_inodes=1024,mode=1777")
    os.chdir("/tmp")


def confine() -> None:
    """Once per execution, in the program's process."""
    kernel.keep_capabilities(set())


def _become_user(flags: int) -> None:
    user, group = os.geteuid(), os.getegid()
    kernel.unshare(flags)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{_USER} {user} 1"), ("gid_map", f"{_USER} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _build_root() -> None:
    kernel.mount(None, "/", None, kernel.REC | kernel.PRIVATE)
    kernel.mount("tmpfs", _STAGE, "tmpfs", kernel.NOSUID | kernel.NODEV, "size=1m,mode=755")
    for path in library.readable():
        _bind(path)
        again = kernel.REMOUNT | kernel.BIND | kernel.RDONLY | kernel.NOSUID | kernel.NODEV
        kernel.mount(None, _STAGE + path, None, again)
    for path in (*library.DEVICES, "/proc"):  # a new /proc may only be mounted where the old one can be seen
        _bind(path)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"{_STAGE}/dev/{name}")
    os.symlink("/proc/self/fd", f"{_STAGE}/dev/fd")
    for name in ("tmp", "old"):
        os.mkdir(f"{_STAGE}/{name}")
    number = syscalls.setup(syscalls.machine())["pivot_root"]
    kernel.syscall(number, _STAGE.encode(), f"{_STAGE}/old".encode())
    os.chdir("/")
    kernel.unmount("/old")
    os.rmdir("/old")
    kernel.mount(None, "/", None, kernel.REMOUNT | kernel.BIND | kernel.RDONLY | kernel.NOSUID | kernel.NODEV)


def _bind(path: str) -> None:
    target = _STAGE + path
    if os.path.isdir(path):
        os.makedirs(target)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w"):
            pass
    kernel.mount(path, target, None, kernel.BIND | kernel.REC)
