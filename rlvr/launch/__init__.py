"""Start the ranks of a run: here, or become one of them where torchrun or srun has started them already."""

import os
import sys
import time
from pathlib import Path

from rlvr.launch import local, slurm
from rlvr.schema.hardware import HardwareConfig
from rlvr.schema.train import TrainConfig

MEET = 600.0  # seconds; ranks compose the configuration and may load shared libraries from a slow disk
VISIBLE = 60.0  # seconds until a shared file system shows what another host has written


def inside() -> bool:
    """Whether this process is already a rank: torchrun's RANK is set, or it is one of several tasks of an srun step."""
    return "RANK" in os.environ or slurm.is_rank(os.environ)


def world_size(config_ranks: int) -> int:
    """How many ranks the run will have: the launcher's number inside, `hardware.ranks` outside."""
    if "RANK" in os.environ:
        return int(os.environ["WORLD_SIZE"])
    return slurm.tasks(os.environ) if slurm.is_rank(os.environ) else config_ranks


def is_leader() -> bool:
    """Whether this process prepares the run directory: rank 0 inside, everybody outside."""
    return int(os.environ.get("RANK") or (os.environ["SLURM_PROCID"] if slurm.is_rank(os.environ) else 0)) == 0


def start(config: TrainConfig, run_dir: Path) -> int:
    """Run the ranks to their end; the leader has written `run_dir/config.yaml` before.

    Args:
        config: as composed; the ranks read the file.
        run_dir: shared by all ranks.

    Returns:
        The exit code: 0, 2 for a mistake in the configuration, or that of the rank that failed first.

    Raises:
        ConfigError: if there are fewer GPUs than ranks.
        RuntimeError: inside, if the leader does not show up.
    """
    run_dir = run_dir.resolve()
    if inside():
        return _join(config.hardware, run_dir)
    hardware = config.hardware
    local.require_devices(hardware.device, hardware.ranks)
    command = [sys.executable, "-m", "rlvr.worker", str(run_dir)]
    return local.run(command, hardware.ranks, environment(hardware, _cores() // hardware.ranks))


def environment(hardware: HardwareConfig, cores: int) -> dict[str, str]:
    """What libraries of a rank read from the environment, some of them while they are imported.

    Args:
        hardware: its `threads` wins.
        cores: that this rank may use.
    """
    env = {
        "OMP_NUM_THREADS": str(hardware.threads or max(1, cores)),
        "TOKENIZERS_PARALLELISM": "false",
        "TORCH_CPP_LOG_LEVEL": "ERROR",  # warnings of C++ code would tear the live display
    }
    return env | ({"DS_ACCELERATOR": "cpu"} if hardware.device == "cpu" else {})


def _join(hardware: HardwareConfig, run_dir: Path) -> int:
    """Be one of the ranks."""
    by_slurm = "RANK" not in os.environ
    if by_slurm:
        os.environ.update(slurm.variables(os.environ))
    cores = _cores() // int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if by_slurm:  # it may have bound each task to cores of its own
        cores = int(os.environ.get("SLURM_CPUS_PER_TASK", cores))
    os.environ.update(environment(hardware, cores))
    from rlvr import worker, world  # only now: torch reads the environment when it is imported

    store = world.meet(ready=is_leader(), timeout=MEET)  # a re-queued run has a config.yaml of its last start
    _await(run_dir / "config.yaml")
    code = worker.main(run_dir)
    del store  # the leader's is the server of all ranks
    return code


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _await(path: Path) -> None:
    end = time.monotonic() + VISIBLE
    while not path.exists():
        if time.monotonic() > end:
            raise RuntimeError(
                f"{path} is not there {VISIBLE:g} s after rank 0 wrote it: do all hosts share the directory?"
            )
        time.sleep(0.1)
