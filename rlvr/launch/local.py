"""The ranks of one machine, as processes under torch's elastic agent: one that fails ends the others."""

import json
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr.keys import ConfigError
from rlvr.launch import slurm

POLL = 0.1  # seconds between two looks at the ranks
SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")  # handed on to the ranks
SENT_TO_ALL = ("SIGTERM", "SIGUSR1", "SIGUSR2")  # SLURM sends these to every process of a step
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Report:
    """What a rank said when it ended."""

    text: str  # a traceback, or a message for the user; empty if the exit code says it all
    code: int
    time: float  # seconds since the epoch


def run(command: list[str], ranks: int, env: Mapping[str, str], patience: int = 600) -> int:
    """Run `command` once per rank and wait for all of them.

    Args:
        command: program and arguments, the same for every rank.
        ranks: number of processes.
        env: added to the environment of every rank, beside torchrun's variables.
        patience: seconds the ranks have to save and leave after a signal.

    Returns:
        0, or the exit code of the rank that failed first, whose report is printed last on stderr;
        128 + the signal's number if a signal ended a rank or this launcher.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    heard = SENT_TO_ALL if slurm.in_step(os.environ) else ()  # by the ranks, who take a second one for impatience
    with tempfile.TemporaryDirectory(prefix="rlvr-") as logs, _surroundings(env, heard):
        agent = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=ranks,
            run_id="rlvr",
            rdzv_backend="c10d",
            rdzv_endpoint=f"{LOOPBACK}:0",
            local_addr=LOOPBACK,
            max_restarts=0,
            monitor_interval=POLL,
            logs_specs=DefaultLogsSpecs(log_dir=logs),
            signals_to_handle=",".join(name for name in SIGNALS if name not in heard),
            shutdown_timeout=patience,
        )
        try:
            elastic_launch(agent, command[0])(*command[1:])
        except ChildFailedError as error:
            return _failed(error.failures, reports(Path(logs)))
        except SignalException as error:
            return _signalled(error.sigval, reports(Path(logs)))
    return 0


def require_devices(device: str, ranks: int) -> None:
    """Refuse more ranks than GPUs before anything is loaded.

    Raises:
        ConfigError: naming both numbers.
    """
    if device == "cuda":
        import torch

        count = torch.cuda.device_count()
        if count < ranks:
            way_out = f"hardware.ranks={count}" if count else "hardware.device=cpu, or another machine"
            raise ConfigError(
                f"hardware.device=cuda with hardware.ranks={ranks}, but torch sees {count} GPU(s): use {way_out}"
            )


def reports(logs: Path) -> dict[int, Report]:
    """The error files of an agent's ranks, by local rank; see `rlvr.worker.report`."""
    found = {}
    for path in logs.glob("**/error.json"):
        message = json.loads(path.read_text(encoding="utf-8"))["message"]
        told = message["extraInfo"]
        found[int(path.parent.name)] = Report(told["py_callstack"], message["errorCode"], told["seconds"])
    return found


def _failed(failures: Mapping[int, Any], told: Mapping[int, Report]) -> int:
    """Print why the first rank failed; return its exit code."""
    rank = root_cause({r: (f.exitcode, float(f.timestamp)) for r, f in failures.items()}, told)
    code = failures[rank].exitcode
    if rank in told:
        text = told[rank].text
    elif code < 0:
        text = f"killed by {signal.Signals(-code).name}"
        text += ", often the kernel's way out of memory: see dmesg" if -code == signal.SIGKILL else ""
    else:
        text = f"exit code {code}, without a traceback"
    if text:
        print(text if code == 2 else f"rank {rank} failed:\n{text.rstrip()}", file=sys.stderr, flush=True)
    return code if code > 0 else 128 - code


def root_cause(ended: Mapping[int, tuple[int, float]], told: Mapping[int, Report]) -> int:
    """The rank that failed first; what the others say ("connection closed by peer") follows from it.

    Args:
        ended: exit code (minus the signal, if negative) and second of notice, by rank.
        told: the reports of the ranks that could still write one.
    """
    # the agent ends the others by SIGTERM
    own = [rank for rank, (code, _) in ended.items() if code != -signal.SIGTERM or rank in told] or list(ended)
    # a rank that was killed is noticed a poll late, at a time in whole seconds
    return min(own, key=lambda rank: told[rank].time if rank in told else ended[rank][1] - 1)


def _signalled(number: signal.Signals, told: Mapping[int, Report]) -> int:
    """The ranks' own exit code, where they gave one (they saved and want to be queued again), or the signal's."""
    codes = [r.code for r in sorted(told.values(), key=lambda r: r.time) if not r.text]
    return codes[0] if codes and number != signal.SIGINT else 128 + number


@contextmanager
def _surroundings(env: Mapping[str, str], unheard: Collection[str]) -> Iterator[None]:
    """The agent takes its ranks' environment from ours, logs much, and leaves signal handlers: put all back.

    Args:
        env: added to the environment.
        unheard: names of signals that do nothing to this process.
    """
    before, handlers = dict(os.environ), {name: signal.getsignal(signal.Signals[name]) for name in SIGNALS}
    log = logging.getLogger("torch.distributed.elastic")
    spoke, log.propagate = log.propagate, False  # what failed is told by us, once
    silent = logging.NullHandler()
    log.addHandler(silent)
    os.environ.update(env)
    for name in unheard:
        signal.signal(signal.Signals[name], lambda *_: None)  # SIG_IGN would be inherited by the ranks
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        log.removeHandler(silent)
        log.propagate = spoke
        for name, handler in handlers.items():
            if handler is not None:  # None: it was not set from Python
                signal.signal(signal.Signals[name], handler)
