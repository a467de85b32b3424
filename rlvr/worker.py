"""One rank of a run: `python -m rlvr.worker RUN_DIR`, started by a launcher."""

import ctypes
import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

import torch

from rlvr import config as configuration
from rlvr.keys import ConfigError
from rlvr.watchdog import HUNG, Watchdog
from rlvr.world import World

MISTAKE = 2  # the exit code of an error that the user can mend
GRACE = 60.0  # seconds by which a collective outlasts the watchdog, which can say more
TEARDOWN = 15.0  # seconds after a failure until the process ends, even if a library hangs while it is torn down
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"  # set by torch's elastic agent, one file per rank
PR_SET_PDEATHSIG = 1  # prctl(2)


def main(run_dir: Path) -> int:
    """Be one rank of the run that `run_dir/config.yaml` describes.

    Returns:
        The exit code: 0; 2 for a mistake of the user; 1 for any other failure; or what the trainer left with.
    """
    try:
        return _train(run_dir)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except ConfigError as error:
        return report(str(error), MISTAKE)
    except Exception:
        faulthandler.dump_traceback_later(TEARDOWN, exit=True)
        return report(traceback.format_exc(), 1)


def report(text: str, code: int) -> int:
    """Tell the launcher why this rank ends, in the format of torch's elastic agent; or stderr, if no agent listens.

    Args:
        text: a traceback, or a message for the user; empty if the exit code says it all.
        code: the exit code.

    Returns:
        `code`.
    """
    path = os.environ.get(ERROR_FILE)
    if path:
        now = time.time()
        told = {"py_callstack": text, "timestamp": str(int(now)), "seconds": now}
        content = {"message": {"message": text, "extraInfo": told, "errorCode": code}}
        Path(path).write_text(json.dumps(content), encoding="utf-8")
    elif text:
        header = "" if code == MISTAKE else f"rank {os.environ.get('RANK', 0)} failed:\n"
        print(f"{header}{text.rstrip()}", file=sys.stderr, flush=True)
    return code


def _train(run_dir: Path) -> int:
    config = configuration.read(run_dir / "config.yaml")
    hardware = config.hardware
    if hardware.threads:
        torch.set_num_threads(hardware.threads)
    world = World.from_env(hardware.device, hardware.timeout + GRACE)
    watchdog = Watchdog(run_dir / "ranks", world.rank, world.size, hardware.timeout, _hung)
    from rlvr.trainer.loop import train  # takes seconds: a rank that cannot join has failed before

    code = 0
    try:
        train(config, world, run_dir, watchdog)
    except SystemExit as leaving:  # all ranks leave together, for example to be queued again
        if not isinstance(leaving.code, int):
            raise
        code = leaving.code
    watchdog.enter("close")
    world.close()
    watchdog.stop()
    if code:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # sent by the launcher once the first of us is gone
        report("", code)
    return code


def _hung(diagnosis: str) -> None:
    report(diagnosis, HUNG)


def _die_with_launcher() -> None:
    """A launcher that is killed cannot end its ranks: let the kernel do it, or they would keep their GPUs."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    if ERROR_FILE in os.environ:
        _die_with_launcher()
    sys.exit(main(Path(sys.argv[1])))
