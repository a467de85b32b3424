"""The system calls that a program may make, by number on x86_64 and aarch64 (- where one does not exist)."""

import platform

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH_* of <linux/audit.h>

# A list of what is allowed, not of what is forbidden: what is missing here, or is new in the kernel, is refused.
_READING = """
read 0 63 | write 1 64 | close 3 57 | stat 4 - | fstat 5 80 | lstat 6 - | poll 7 - | lseek 8 62 | mmap 9 222
mprotect 10 226 | munmap 11 215 | brk 12 214 | rt_sigaction 13 134 | rt_sigprocmask 14 135 | rt_sigreturn 15 139
pread64 17 67 | pwrite64 18 68 | readv 19 65 | writev 20 66 | access 21 - | pipe 22 - | select 23 -
sched_yield 24 124 | mremap 25 216 | msync 26 227 | mincore 27 232 | madvise 28 233 | dup 32 23 | dup2 33 -
pause 34 - | nanosleep 35 101 | getitimer 36 102 | alarm 37 - | setitimer 38 103 | getpid 39 172 | exit 60 93
uname 63 160 | fsync 74 82 | fdatasync 75 83 | getdents 78 - | getcwd 79 17 | chdir 80 49 | fchdir 81 50
readlink 89 - | umask 95 166 | gettimeofday 96 169 | getrlimit 97 163 | getrusage 98 165 | sysinfo 99 179
times 100 153 | getuid 102 174 | getgid 104 176 | geteuid 107 175 | getegid 108 177 | getppid 110 173
getpgrp 111 - | getgroups 115 158 | getresuid 118 148 | getresgid 120 150 | getpgid 121 155 | getsid 124 156
rt_sigpending 127 136 | rt_sigtimedwait 128 137 | rt_sigsuspend 130 133 | sigaltstack 131 132 | setrlimit 160 164
gettid 186 178 | time 201 - | futex 202 98 | sched_getaffinity 204 123 | epoll_create 213 - | getdents64 217 61
restart_syscall 219 128 | fadvise64 221 223 | clock_gettime 228 113 | clock_getres 229 114 | clock_nanosleep 230 115
exit_group 231 94 | epoll_wait 232 - | epoll_ctl 233 21 | newfstatat 262 79 | readlinkat 267 78 | faccessat 269 48
pselect6 270 72 | ppoll 271 73 | set_robust_list 273 99 | epoll_pwait 281 22 | eventfd2 290 19
epoll_create1 291 20 | dup3 292 24 | pipe2 293 59 | preadv 295 69 | pwritev 296 70 | getcpu 309 168
getrandom 318 278 | statx 332 291 | rseq 334 293 | close_range 436 436 | faccessat2 439 439
"""
_WRITING = """
truncate 76 45 | ftruncate 77 46 | rename 82 - | mkdir 83 - | rmdir 84 - | creat 85 - | link 86 - | unlink 87 -
symlink 88 - | chmod 90 - | fchmod 91 52 | utime 132 - | utimes 235 - | mkdirat 258 34 | unlinkat 263 35
renameat 264 38 | linkat 265 37 | symlinkat 266 36 | fchmodat 268 53 | utimensat 280 88 | fallocate 285 47
renameat2 316 276 | sendfile 40 71 | copy_file_range 326 285 | flock 73 32
"""
_CHECKED = """
open 2 - | openat 257 56 | ioctl 16 29 | clone 56 220 | kill 62 129 | fcntl 72 25 | prctl 157 167 | tgkill 234 131
prlimit64 302 261 | clone3 435 435
"""
_SETUP = """
pivot_root 155 41 | landlock_create_ruleset 444 444 | landlock_add_rule 445 445 | landlock_restrict_self 446 446
"""


def _table(text: str, machine: str) -> dict[str, int]:
    """Name -> number of one block above."""
    column = list(ARCHITECTURES).index(machine) + 1
    rows = [entry.split() for entry in text.replace("\n", "|").split("|") if entry.strip()]
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


def machine() -> str:
    """This machine's architecture.  Raises OSError if it has no table here."""
    name = platform.machine()
    if name not in ARCHITECTURES:
        raise OSError(f"no system call table for {name}; there are {', '.join(ARCHITECTURES)}")
    return name


def reading(machine: str) -> dict[str, int]:
    """Allowed always: they change nothing outside the process."""
    return _table(_READING, machine)


def writing(machine: str) -> dict[str, int]:
    """Allowed where the file system is the program's own."""
    return _table(_WRITING, machine)


def checked(machine: str) -> dict[str, int]:
    """Allowed with certain arguments only."""
    return _table(_CHECKED, machine)


def setup(machine: str) -> dict[str, int]:
    """What the jail itself calls by number."""
    return _table(_SETUP, machine)
