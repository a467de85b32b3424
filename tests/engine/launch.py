"""Run a test script on several ranks of this machine, without the product's own launcher."""

import os
import socket
import subprocess
import sys

from rlvr.launch import environment
from tests.engine.models import HARDWARE


def on_ranks(ranks: int, module: str, *arguments: object, timeout: float = 300) -> None:
    """Run `python -m module arguments` on `ranks` gloo ranks; fails with the first failing rank's errors."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", module, *map(str, arguments)]
    env = os.environ | environment(HARDWARE, cores=1) | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    world = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    started = [
        subprocess.Popen(
            command,
            env=env | world | {"RANK": str(r), "LOCAL_RANK": str(r)},
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        for r in range(ranks)
    ]
    for process in started:
        _, errors = process.communicate(timeout=timeout)
        assert process.returncode == 0, errors[-4000:]
