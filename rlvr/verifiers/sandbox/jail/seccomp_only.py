"""The backend of last resort, without protection of files: a program can read what the user can read.

It cannot write, start processes or reach the network, because the filter on system calls stays.
"""

from . import landlock

WRITING = False


def prepare() -> None:
    """Once, in the zygote."""
    landlock.step_down()


def enter() -> None:
    """Once per execution, in the process that will watch the program: nothing to do."""


def confine() -> None:
    """Once per execution, in the program's process: nothing to do."""
