"""The table of contents: one line per algorithm."""

from rlvr.algorithms.base import Algorithm
from rlvr.algorithms.dapo import DAPO
from rlvr.algorithms.grpo import GRPO

ALGORITHMS: dict[str, type[Algorithm]] = {
    "dapo": DAPO,
    "grpo": GRPO,
}
