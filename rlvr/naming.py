"""Names that runs and the members of sweeps get where nobody gives one."""

import hashlib
import os
import re
import sys
from collections.abc import Iterable
from datetime import datetime

from rlvr.keys import ConfigError

SLUG = 80  # most characters of a directory's name that are there to be read


def started() -> str:
    """When this run started: new at every start, but equal on all ranks of a job and after a requeue."""
    torchrun = os.environ.get("TORCHELASTIC_RUN_ID")
    if torchrun == "none":
        raise ConfigError("under torchrun all ranks must agree on the run: give run.name=... or torchrun --rdzv-id=...")
    at_a_shell = "SLURM_PTY_PORT" in os.environ  # an interactive srun: each command is a run of its own
    slurm = os.environ.get("SLURM_JOB_ID") if "SLURM_PROCID" in os.environ and not at_a_shell else None
    if torchrun or slurm:
        return f"job{torchrun or slurm}-{_digest(' '.join(sys.argv[1:]))}"
    return datetime.now().strftime("%Y-%m-%d_%H-%M-%S-%f")[:-3]  # milliseconds: runs started together differ too


def _digest(text: str) -> str:
    return hashlib.blake2s(text.encode(), digest_size=3).hexdigest()


def member_folder(overrides: Iterable[str]) -> str:
    """The directory of a sweep's member: readable, safe in file and job names, and never that of another member.

    Args:
        overrides: of the member; `run.*` and `sweep.*` do not change what is computed, and do not count.
    """
    own = sorted(o for o in overrides if not o.lstrip("+").startswith(("run.", "sweep.", "hydra")))
    digest = hashlib.blake2s("\n".join(own).encode(), digest_size=5).hexdigest()
    split = sorted((key.count("."), key, value) for key, _, value in (o.partition("=") for o in own))
    told = "-".join(f"{key.rpartition('.')[2]}-{value}" for _, key, value in split)  # groups and seed come first
    slug = re.sub(r"[^A-Za-z0-9._]+", "-", told)[:SLUG].strip("-._")
    return f"{slug}-{digest}" if slug else digest
