"""SLURM's variables, put into torchrun's words: under srun every task is a rank."""

import re
import socket
import subprocess
from collections.abc import Callable, Mapping

LOOPBACK = "127.0.0.1"
PATIENCE = 60.0  # seconds until the controller counts as out of reach
SPECIAL_STEPS = 0xFFFFFFF0  # batch scripts, interactive shells and the like have step numbers from here on


def in_step(env: Mapping[str, str]) -> bool:
    """Whether this process is a task of an srun step.

    The shell of an sbatch script or of salloc has SLURM_PROCID=0 as well; its step is no number or a special one.
    """
    step = env.get("SLURM_STEP_ID", "batch")
    return "SLURM_PROCID" in env and step.isdecimal() and int(step) < SPECIAL_STEPS


def is_rank(env: Mapping[str, str]) -> bool:
    """Whether this process is one of several tasks of a step.

    A single task has nobody to join: it may start ranks of its own, as it would without SLURM.
    """
    return in_step(env) and tasks(env) > 1


def tasks(env: Mapping[str, str]) -> int:
    """Tasks of the step; 1 if SLURM names no number."""
    return int(env.get("SLURM_STEP_NUM_TASKS") or env.get("SLURM_NTASKS") or 1)


def variables(env: Mapping[str, str], address: Callable[[str], str] | None = None) -> dict[str, str]:
    """torchrun's variables of this task.  MASTER_ADDR and MASTER_PORT that the user has set are kept.

    Args:
        env: the environment of a task, see `is_rank`.
        address: turns a SLURM list of nodes into the address of the first; asks SLURM by default.
    """
    nodes = env.get("SLURM_STEP_NODELIST") or env["SLURM_JOB_NODELIST"]
    here = LOOPBACK if _tasks_here(env) == tasks(env) else None
    return {
        "RANK": env["SLURM_PROCID"],
        "WORLD_SIZE": str(tasks(env)),
        "LOCAL_RANK": env["SLURM_LOCALID"],
        "LOCAL_WORLD_SIZE": str(_tasks_here(env)),
        "MASTER_ADDR": env.get("MASTER_ADDR") or here or (address or first_address)(nodes),
        "MASTER_PORT": env.get("MASTER_PORT") or str(_port(int(env["SLURM_JOB_ID"]), int(env["SLURM_STEP_ID"]))),
    }


def first_address(nodes: str) -> str:
    """An address of the first node of a SLURM list such as `gpu[03-06]`.

    Raises:
        RuntimeError: if SLURM does not know the node, or knows no address for a name that does not resolve.
    """
    name = _ask("show", "hostnames", nodes).split()[0]
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        found = re.search(r"NodeAddr=(\S+)", _ask("show", "node", "-o", name))
        if not found:
            raise RuntimeError(
                f"node {name} does not resolve, and SLURM has no address for it: set MASTER_ADDR"
            ) from None
        return found[1]
    return name


def job_end(env: Mapping[str, str], now: float) -> float | None:
    """When the job's time limit is reached, in seconds since the epoch; None outside of a job, or without a limit.

    Raises:
        RuntimeError: if SLURM does not answer.
    """
    if told := env.get("SLURM_JOB_END_TIME"):  # set by new versions
        return float(told)
    if "SLURM_JOB_ID" not in env:
        return None
    left = seconds(_answer("squeue", "--noheader", f"--jobs={env['SLURM_JOB_ID']}", "--format=%L").strip())
    return None if left is None else now + left


def seconds(duration: str) -> float | None:
    """SLURM's way to write a duration, `[days-][[hours:]minutes:]seconds`; None for a word, such as UNLIMITED."""
    found = re.fullmatch(r"(?:(\d+)-)?(?:(?:(\d+):)?(\d+):)?(\d+)", duration)
    if not found:
        return None
    days, hours, minutes, rest = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + rest)


def _ask(*question: str) -> str:
    try:
        return _answer("scontrol", *question)
    except RuntimeError as error:
        raise RuntimeError(f"{error}; set MASTER_ADDR yourself") from None


def _answer(*command: str) -> str:
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(f"{' '.join(command)}: {error}") from None
    if answer.returncode:
        raise RuntimeError(f"{' '.join(command)}: {answer.stderr.strip()}")
    return answer.stdout


def _port(job: int, step: int) -> int:
    """A port that all tasks agree on, below the range that the kernel gives to clients; steps of a job differ."""
    return 20000 + (job * 101 + step) % 12000


def _tasks_here(env: Mapping[str, str]) -> int:
    """This node's number of tasks, from a list such as `4(x3),2`."""
    spread = env.get("SLURM_STEP_TASKS_PER_NODE") or env["SLURM_TASKS_PER_NODE"]
    counts = [
        int(count) for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", spread) for _ in range(int(times or 1))
    ]
    return counts[int(env["SLURM_NODEID"])]
