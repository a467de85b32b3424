"""Start the ranks of a run: here, or become one of them where torchrun or srun has started them already."""

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from rlvr import leave
from rlvr.keys import ConfigError
from rlvr.launch import local, slurm
from rlvr.schema.eval import EvalConfig
from rlvr.schema.hardware import HardwareConfig
from rlvr.schema.train import TrainConfig

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


def start(config: TrainConfig | EvalConfig, run_dir: Path) -> int:
    """Run the ranks to their end; the leader has written `run_dir/config.yaml` before.

    Args:
        config: as composed; the ranks read the file.
        run_dir: shared by all ranks.

    Returns:
        The exit code: 0, 2 for a mistake in the configuration, or that of the rank that failed first.

    Raises:
        ConfigError: if there are fewer GPUs than ranks, or not the nodes that `hardware.nodes` asks for.
        RuntimeError: inside, if the leader does not show up.
    """
    run_dir, hardware = run_dir.resolve(), config.hardware
    hours = config.run.max_hours if isinstance(config, TrainConfig) else None
    end = job_end(hours, os.environ, time.time()) if is_leader() else {}  # one question per job
    if inside():
        _check_nodes(hardware)
        os.environ.update(end)
        return _join(hardware, run_dir)
    if hardware.nodes > 1:
        raise ConfigError(
            f"hardware.nodes={hardware.nodes}: this starts ranks on one machine; use rlvr submit, or srun or torchrun "
            "on each of them"
        )
    local.require_devices(hardware.device, hardware.ranks)
    command = [sys.executable, "-m", "rlvr.worker", str(run_dir)]
    return local.run(command, hardware.ranks, environment(hardware, _cores() // hardware.ranks) | end)


def job_end(max_hours: float | None, env: Mapping[str, str], now: float) -> dict[str, str]:
    """The variable that tells the ranks when to be done, if there is such a time: the earliest of SLURM's limit, of
    `run.max_hours`, and of what somebody else has set."""
    ends = [leave.job_end(env), None if max_hours is None else now + 3600 * max_hours]
    try:
        ends.append(slurm.job_end(env, now))
    except RuntimeError as error:
        print(f"SLURM does not say when the job ends, so that only a signal can end it: {error}", file=sys.stderr)
    known = [end for end in ends if end is not None]
    return {leave.JOB_END: str(min(known))} if known else {}


def _check_nodes(hardware: HardwareConfig) -> None:
    """With one node, the launcher decides on the number of ranks."""
    asked, there = hardware.nodes * hardware.ranks, world_size(hardware.ranks)
    if hardware.nodes > 1 and asked != there:
        raise ConfigError(
            f"hardware.nodes={hardware.nodes} x hardware.ranks={hardware.ranks} are {asked} ranks, the launcher "
            f"started {there}"
        )


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
    if hardware.device == "cpu":
        env |= {
            "DS_ACCELERATOR": "cpu",
            "MALLOC_MMAP_THRESHOLD_": "1048576",  # freed tensors of activations leave no holes in the heap
            "TORCH_COMPILE_DISABLE": "1",  # vLLM would compile the ranks of log-probs, for seconds in every process
        }
    return env


def _join(hardware: HardwareConfig, run_dir: Path) -> int:
    """Be one of the ranks."""
    by_slurm = "RANK" not in os.environ
    if by_slurm:
        os.environ.update(slurm.variables(os.environ))
    cores = _cores() // int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if by_slurm:  # it may have bound each task to cores of its own
        cores = int(os.environ.get("SLURM_CPUS_PER_TASK", cores))
    os.environ.update(environment(hardware, cores))
    from rlvr import rendezvous, worker  # only now: torch reads the environment when it is imported

    try:
        store = rendezvous.join(hardware.join_timeout)  # the leader comes when it has written config.yaml
    except rendezvous.RendezvousError as error:
        return worker.report(str(error), worker.MISTAKE)
    _await(run_dir / "config.yaml")
    return worker.main(run_dir, store)


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
