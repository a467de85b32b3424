"""`rlvr submit`: check a run, fix its name and directory, and queue it under SLURM; `rlvr run`: start such a run.

The job's script holds the path of the run directory and no value of the configuration: the ranks read the
`config.yaml` that was checked here, whatever has changed since.
"""

from __future__ import annotations

import argparse
import copy
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from rlvr import config, launch
from rlvr.keys import ConfigError
from rlvr.leave import REQUEUE
from rlvr.schema.train import TrainConfig, check_across

LOGS = "slurm"  # folder of the run directory
USAGE = """usage: rlvr submit [--dry-run] [--seeds LIST | --chain N] [KEY=VALUE ...]

Queue a run under SLURM.  The configuration is that of `rlvr train`, checked here; nodes and GPUs are hardware.nodes
and hardware.ranks (hardware=slurm_h100x8x2), the rest is slurm.* (`rlvr config explain slurm`).

  --dry-run     print the job's script and submit nothing
  --seeds LIST  an array of runs, such as 0-4 or 0,7,9 or 0-9%2 (two at a time); NAME-seed0, NAME-seed1, ...
  --chain N     N jobs, each after the one before it has ended, for runs longer than the time limit; without it, a run
                that leaves at its time limit is queued again (slurm.requeues)

The same command once more goes on with the run where it was."""
RUN_USAGE = """usage: rlvr run DIRECTORY

Start, or go on with, the run that DIRECTORY/config.yaml describes, as `rlvr train` or `rlvr submit` has written it.
Under srun or torchrun each task is a rank, as with `rlvr train`."""


@dataclass(frozen=True)
class Planned:
    """A run that is checked and ready to be queued."""

    config: TrainConfig
    directory: Path


def submit(arguments: list[str]) -> int:
    """Queue a run under SLURM: train's overrides, --dry-run, --seeds 0-4, --chain 3."""
    parser = argparse.ArgumentParser(prog="rlvr submit", add_help=False, allow_abbrev=False)
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--seeds")
    parser.add_argument("--chain", type=int, default=1)
    asked, overrides = parser.parse_known_args(arguments)
    if asked.help:
        print(USAGE)
        return 0
    if {"-m", "--multirun"} & set(overrides):
        raise ConfigError("rlvr submit queues one run; for a sweep use rlvr train -m hydra/launcher=submitit_slurm")
    if asked.chain < 1 or (asked.seeds and asked.chain > 1):
        raise ConfigError("--chain takes the number of jobs, and goes with one run, not with --seeds")
    jobs: list[config.Job] = []
    config.application(jobs.append, overrides)
    for job in jobs:
        _submit(job, asked)
    return 0


def _submit(job: config.Job, asked: argparse.Namespace) -> None:
    try:
        plan = _plan(job, seeds(asked.seeds) if asked.seeds else [])
        script = render(plan[0], job.directory.resolve(), asked.seeds, 0 if asked.chain > 1 else None)
        if asked.dry_run:
            print(script, end="")
            return
        for run in plan:
            (run.directory / LOGS).mkdir(parents=True, exist_ok=True)
            config.write(run.config, run.directory / "config.yaml")
        previous = None
        for _ in range(asked.chain):
            previous = _sbatch(script, [] if previous is None else [f"--dependency=afterany:{previous}"])
            print(f"job {previous}  {plan[0].config.run.name}", flush=True)
        print(f"logs    {plan[0].directory / LOGS}")
    finally:
        config.discard(job.directory)


def _plan(job: config.Job, numbers: list[int]) -> list[Planned]:
    given, base, made = config.given_keys(job.overrides), job.directory.resolve(), []
    seeds: list[int | None] = [*numbers] or [None]
    for number in seeds:
        cfg, directory = copy.deepcopy(job.cfg), base
        if number is not None:  # before the configuration is resolved: other keys may follow the seed
            cfg.seed, cfg.run.name, directory = number, f"{cfg.run.name}-seed{number}", Path(f"{base}-seed{number}")
        ranks = cfg.hardware.nodes * cfg.hardware.ranks
        made.append(Planned(config.load(cfg, given, ranks), directory))
    return made


def seeds(text: str) -> list[int]:
    """`0-2,7%2` -> [0, 1, 2, 7]; what stands behind % is for SLURM.

    Raises:
        ConfigError: if it is no such list.
    """
    if not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*(%\d+)?", text):
        raise ConfigError(f"--seeds {text}: write 0-4, or 0,7,9, or 0-9%2 for two at a time")
    found: list[int] = []
    for part in text.partition("%")[0].split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    if not found:
        raise ConfigError(f"--seeds {text}: no seed is in it")
    return found


# -- the script -----------------------------------------------------------------------------


def render(run: Planned, directory: Path, array: str | None = None, requeues: int | None = None) -> str:
    """The job's script.

    Args:
        run: whose hardware and job it asks for.
        directory: of the run; that of an array's element has "-seed<number>" at its end.
        array: SLURM's list of elements.
        requeues: instead of `slurm.requeues`.

    Raises:
        ConfigError: if the name or the directory has characters that no script can hold.
    """
    slurm, path = run.config.slurm, str(directory)
    if not path.isprintable() or "\\" in path:  # SLURM takes a backslash for an instruction
        raise ConfigError(f"{path!r}: the directory of a job may have no backslash, and only printable characters")
    target = shlex.quote(path) + ('-seed"$SLURM_ARRAY_TASK_ID"' if array else "")
    job = '"${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"' if array else '"$SLURM_JOB_ID"'
    limit = slurm.requeues if requeues is None else requeues
    return "\n".join([
        "#!/bin/bash",
        *(f"#SBATCH {shlex.quote(option)}" for option in _options(run.config, path, array)),
        *([f"source {shlex.quote(str(Path(slurm.setup).resolve()))}"] if slurm.setup else []),
        f"srun --kill-on-bad-exit=0 --wait={slurm.wait} {_cores(slurm.cpus_per_rank)}\\",
        f"    {shlex.quote(sys.executable)} -m rlvr.cli run {target}",
        "code=$?",
        f'if [ "$code" -eq {REQUEUE} ] && [ "${{SLURM_RESTART_COUNT:-0}}" -lt {limit} ]; then',
        f"    scontrol requeue {job}",
        "fi",
        'exit "$code"',
        "",
    ])  # fmt: skip


def _options(config: TrainConfig, path: str, array: str | None) -> list[str]:
    slurm, hardware = config.slurm, config.hardware
    logs = f"{path}-seed%a/{LOGS}/%A_%a.out" if array else f"{path}/{LOGS}/%j.out"
    given = {
        "partition": slurm.partition,
        "account": slurm.account,
        "qos": slurm.qos,
        "cpus-per-task": slurm.cpus_per_rank,
        "mem": slurm.memory,
        "gpus-per-node": hardware.ranks if hardware.device == "cuda" else None,
        "array": array,
        "signal": f"USR2@{slurm.signal}" if slurm.signal else None,
        "dependency": None if array else "singleton",  # two jobs never write into one directory
    }
    return [
        f"--job-name={_label(Path(path).name)}",
        f"--output={logs[: len(path)].replace('%', '%%')}{logs[len(path) :]}",
        f"--chdir={Path.cwd()}",
        f"--nodes={hardware.nodes}",
        f"--ntasks-per-node={hardware.ranks}",
        f"--time={slurm.time}",
        *(f"--{name}={value}" for name, value in given.items() if value is not None),
        *(["--exclusive"] if slurm.exclusive else []),
        "--requeue",
        "--open-mode=append",
        *slurm.options,
    ]


def _label(name: str) -> str:
    """A job name that every tool can print."""
    return re.sub(r"[^\w.+-]", "_", name)


def _cores(per_rank: int | None) -> str:
    return f"--cpus-per-task={per_rank} " if per_rank else ""  # srun does not take it over from sbatch


def _sbatch(script: str, options: list[str]) -> str:
    """Submit; returns the number of the job."""
    try:
        done = subprocess.run(["sbatch", "--parsable", *options], input=script, capture_output=True, text=True)
    except FileNotFoundError:
        raise ConfigError("sbatch is not there: submit from a login node, or look at --dry-run") from None
    if done.returncode:
        raise ConfigError(f"sbatch refuses the job: {done.stderr.strip()}")
    return done.stdout.strip().partition(";")[0]


# -- rlvr run -----------------------------------------------------------------------------


def run(arguments: list[str]) -> int:
    """Start, or go on with, the run of a directory."""
    if len(arguments) != 1 or arguments[0] in ("-h", "--help"):
        print(RUN_USAGE)
        return 0 if arguments in (["-h"], ["--help"]) else 2
    directory = Path(arguments[0])
    path = directory / "config.yaml"
    if not path.is_file():
        raise ConfigError(f"{path} is not there: name the directory of a run")
    described = config.read(path)
    check_across(described, launch.world_size(described.hardware.ranks))
    return launch.start(described, directory)
