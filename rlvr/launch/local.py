"""The ranks of one machine, as child processes: one that fails ends the others, and signals are handed on to all."""

import json
import logging
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr.keys import ConfigError
from rlvr.launch import slurm
from rlvr.leave import ERROR_FILE

LOG = logging.getLogger(__name__)
POLL = 0.1  # seconds between two looks at the ranks
NOTICED = 1.0  # seconds within which it is noticed that a rank was killed, on a busy machine
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)  # handed on
SENT_TO_ALL = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)  # SLURM sends these to every process of a step


@dataclass(frozen=True)
class Report:
    """What a rank said when it ended."""

    text: str  # a traceback, or a message for the user; empty if the exit code says it all
    code: int
    time: float  # seconds since the epoch


@dataclass(frozen=True)
class End:
    """How a rank ended."""

    code: int  # minus the signal, if one killed it
    time: float  # when that was noticed, in seconds since the epoch


def run(command: list[str], ranks: int, env: Mapping[str, str], patience: float = 600) -> int:
    """Run `command` once per rank and wait for all of them.

    torch's elastic agent would do the same, but takes seconds to import before the first rank starts.

    Args:
        command: program and arguments, the same for every rank.
        ranks: number of processes; a single one gets none of torchrun's variables.
        env: added to the environment of every rank, beside torchrun's variables.
        patience: seconds the ranks have to save and leave after a signal, or after one of them has failed.

    Returns:
        0, or the exit code of the rank that failed first, whose report is logged last;
        128 + the signal's number if a signal ended a rank or this launcher.
    """
    unheard = SENT_TO_ALL if slurm.in_step(os.environ) else ()  # the ranks take a second one for impatience
    with tempfile.TemporaryDirectory(prefix="rlvr-") as logs, _caught(unheard) as caught:
        processes, store = [], _store() if ranks > 1 else None
        try:
            for rank in range(ranks):
                places = {ERROR_FILE: f"{logs}/{rank}.json"} | (_variables(rank, ranks, store.port) if store else {})
                processes.append(subprocess.Popen(command, env={**os.environ, **env, **places}, start_new_session=True))
            ended = _wait(processes, caught, patience)
        finally:
            for process in processes:
                process.kill()
        told = reports(Path(logs))
    if caught:
        return _signalled(caught[0], ended, told)
    return _failed(ended, told) if any(end.code for end in ended.values()) else 0


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
    """The error files of the ranks, by local rank; see `rlvr.worker.report`."""
    found = {}
    for path in logs.glob("*.json"):
        message = json.loads(path.read_text(encoding="utf-8"))["message"]
        told = message["extraInfo"]
        found[int(path.stem)] = Report(told["py_callstack"], message["errorCode"], told["seconds"])
    return found


def root_cause(ended: Mapping[int, End], told: Mapping[int, Report]) -> int:
    """The rank that failed first; what the others say ("connection closed by peer") follows from it.

    Args:
        ended: those that ended with an error, by rank.
        told: the reports of the ranks that could still write one.
    """
    # the launcher ends the others by SIGTERM
    own = [rank for rank, end in ended.items() if end.code != -signal.SIGTERM or rank in told] or list(ended)
    # a rank that was killed is noticed late, when others may have told that it is gone
    return min(own, key=lambda rank: told[rank].time if rank in told else ended[rank].time - NOTICED)


# -- the processes -----------------------------------------------------------------------------


def _store() -> Any:
    """Where several ranks meet; it outlives any of them, so that the last can still read why the first has failed."""
    from rlvr.rendezvous import serve  # imports torch

    return serve(0, everywhere=False)


def _variables(rank: int, ranks: int, port: int) -> dict[str, str]:
    """torchrun's variables."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": slurm.LOOPBACK,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the store is there, rank 0 need not serve it
    }


def _wait(processes: Sequence[subprocess.Popen[bytes]], caught: list[int], patience: float) -> dict[int, End]:
    """How every rank ended.

    Args:
        processes: by rank.
        caught: signals, to which more may be added at any time; each is handed on.
        patience: seconds from the first signal or failure until who is still there is killed.
    """
    ended: dict[int, End] = {}
    handed_on, last_moment = 0, float("inf")
    while True:
        ended |= {
            rank: End(process.returncode, time.time())
            for rank, process in enumerate(processes)
            if rank not in ended and process.poll() is not None
        }
        if len(ended) == len(processes):
            return ended
        left = [process for rank, process in enumerate(processes) if rank not in ended]
        failed = any(end.code for end in ended.values()) and last_moment == float("inf")
        new = caught[handed_on:]
        handed_on += len(new)  # not all that are there by now: one more may have come meanwhile
        for number in [*new, *([signal.SIGTERM] if failed else [])]:
            last_moment = min(last_moment, time.monotonic() + patience)
            for process in left:
                process.send_signal(number)
        if time.monotonic() > last_moment:
            for process in left:
                process.kill()
        time.sleep(POLL)


@contextmanager
def _caught(unheard: Sequence[int]) -> Iterator[list[int]]:
    """The signals that come to this process meanwhile, in their order, but for those that are to do nothing."""
    caught: list[int] = []
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        # SIG_IGN would be inherited by the ranks
        signal.signal(number, (lambda *_: None) if number in unheard else lambda number, _: caught.append(number))
    try:
        yield caught
    finally:
        for number, handler in before.items():
            if handler is not None:  # None: it was not set from Python
                signal.signal(number, handler)


# -- what they say -----------------------------------------------------------------------------


def _failed(ended: Mapping[int, End], told: Mapping[int, Report]) -> int:
    """Log why the first rank failed, which Hydra also writes into the run's own file; return its exit code."""
    rank = root_cause({rank: end for rank, end in ended.items() if end.code}, told)
    code = ended[rank].code
    if rank in told:  # a rank that has said why may still be ended by the launcher's SIGTERM
        text, code = told[rank].text, told[rank].code
    elif code < 0:
        text = f"killed by {signal.Signals(-code).name}"
        text += ", often the kernel's way out of memory: see dmesg" if -code == signal.SIGKILL else ""
    else:
        text = f"exit code {code}, without a traceback"
    if text:
        LOG.error(text if code == 2 else f"rank {rank} failed:\n{text.rstrip()}")
    return code if code > 0 else 128 - code


def _signalled(number: int, ended: Mapping[int, End], told: Mapping[int, Report]) -> int:
    """The ranks' own exit code, where they gave one (they saved and want to be queued again), or the signal's."""
    if not any(end.code for end in ended.values()):  # they were about to end anyway
        return 0
    codes = [r.code for r in sorted(told.values(), key=lambda r: r.time) if not r.text]
    return codes[0] if codes and number != signal.SIGINT else 128 + number
