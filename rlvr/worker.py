"""One rank of a run: `python -m rlvr.worker RUN_DIR`, started by a launcher."""

import ctypes
import faulthandler
import json
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch

from rlvr import config as configuration
from rlvr.evaluation import settings
from rlvr.keys import ConfigError, RunError
from rlvr.leave import ERROR_FILE, SIGNALS
from rlvr.peers import Peers
from rlvr.redact import redact
from rlvr.rendezvous import RendezvousError, join, stay_on_loopback
from rlvr.schema.eval import EvalConfig
from rlvr.schema.train import TrainConfig
from rlvr.watchdog import HUNG, Watchdog
from rlvr.world import World

LOG = logging.getLogger(__name__)
MISTAKE = 2  # the exit code of an error that the user can mend
GRACE = 60.0  # seconds by which a collective outlasts the watchdog, which can say more
TEARDOWN = 15.0  # seconds after a failure until the process ends, even if a library hangs while it is torn down
PR_SET_PDEATHSIG = 1  # prctl(2)


class Follows(Exception):
    """Another rank has failed before, and so has ended this one as well."""


def main(run_dir: Path, store: Any = None) -> int:
    """Be one rank of the run that `run_dir/config.yaml` describes.

    Args:
        run_dir: shared by all ranks.
        store: of a rendezvous that the caller has had; None to have it here.

    Returns:
        The exit code: 0; 2 for a mistake of the user; 1 for any other failure; or what the trainer left with.
    """
    try:
        path = run_dir / "config.yaml"
        config = settings.read_eval(path) if settings.is_evaluation(path) else configuration.read(path)
        if "RANK" not in os.environ:
            stay_on_loopback()
        elif store is None:
            store = join(config.hardware.join_timeout)
        return _do(config, run_dir, store)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except (ConfigError, RendezvousError) as error:
        return report(str(error), MISTAKE)
    except RunError as error:
        faulthandler.dump_traceback_later(TEARDOWN, exit=True)
        return report(str(error), 1)
    except Exception as error:
        faulthandler.dump_traceback_later(TEARDOWN, exit=True)
        return report(f"it {error}" if isinstance(error, Follows) else traceback.format_exc(), 1)


def report(text: str, code: int) -> int:
    """Tell the launcher why this rank ends, in the format of torchrun; or the log, if nobody listens.

    Args:
        text: a traceback, or a message for the user; empty if the exit code says it all.
        code: the exit code.

    Returns:
        `code`.
    """
    text = redact(text)
    path = os.environ.get(ERROR_FILE)
    if path:
        now = time.time()
        told = {"py_callstack": text, "timestamp": str(int(now)), "seconds": now}
        content = {"message": {"message": text, "extraInfo": told, "errorCode": code}}
        Path(path).write_text(json.dumps(content), encoding="utf-8")
    elif text:
        header = "" if code == MISTAKE else f"rank {os.environ.get('RANK', 0)} failed:\n"
        LOG.error(f"{header}{text.rstrip()}")
    return code


def _do(config: TrainConfig | EvalConfig, run_dir: Path, store: Any) -> int:
    hardware = config.hardware
    if hardware.threads:
        torch.set_num_threads(hardware.threads)
    torch.set_flush_denormal(True)  # a CPU is slow with them, and moments of words that never occur fade into them
    world = World.from_env(hardware.device, hardware.timeout + GRACE, store)
    peers = Peers(store, world.rank, world.size, _lost) if store and world.size > 1 else None
    watchdog = Watchdog(run_dir / "ranks", world.rank, world.size, hardware.timeout, partial(_hung, peers))
    work = _work(config)  # imports for seconds: a rank that cannot join has failed before
    code = 0
    try:
        work(world, run_dir, watchdog)
    except SystemExit as leaving:  # all ranks leave together, for example to be queued again
        if not isinstance(leaving.code, int):
            raise
        code = leaving.code
        for number in SIGNALS:  # sent by the launcher once the first of us is gone
            signal.signal(number, signal.SIG_IGN)
    except Exception as error:
        first = peers.failed(f"{type(error).__name__}: {error}") if peers else None
        if first and not isinstance(error, ConfigError):
            raise Follows(f"follows from the failure of {first}") from None
        raise
    if peers:
        peers.stop()
    watchdog.enter("close")
    world.close()
    watchdog.stop()
    if code:
        report("", code)
    return code


def _work(config: TrainConfig | EvalConfig) -> Callable[[World, Path, Watchdog], None]:
    if isinstance(config, EvalConfig):
        from rlvr.evaluation.run import evaluate

        return partial(evaluate, config)
    from rlvr.trainer.loop import train

    return partial(train, config)


def _hung(peers: Peers | None, diagnosis: str) -> None:
    report(diagnosis, HUNG)
    if peers:
        peers.failed(diagnosis)


def _lost(text: str) -> NoReturn:
    """On a thread, while the main one may be stuck in a collective that a lost rank will never join."""
    report(text, 1)
    os._exit(1)


def _die_with_launcher() -> None:
    """A launcher that is killed cannot end its ranks: let the kernel do it, or they would keep their GPUs."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    if ERROR_FILE in os.environ:
        _die_with_launcher()
    sys.exit(main(Path(sys.argv[1])))
