"""Ranks for tests: all of a rank but its trainer is real."""

import socket

# a rank as under torchrun: the real start and the real worker, around a trainer of a few lines, given as {trainer}
RANK = """
import os, sys, time, types
from pathlib import Path
import torch
from rlvr import config, launch
from rlvr.keys import ConfigError

hardware = types.SimpleNamespace(device="cpu", nodes=1, ranks=2, threads=1, timeout=60)
hardware.join_timeout = float(os.environ.get("JOIN", 60))
hardware.timeout = float(os.environ.get("TIMEOUT", 60))
composed = types.SimpleNamespace(hardware=hardware, run=types.SimpleNamespace(max_hours=None))
def read(path):
    if path.read_text() != "of this start":
        raise RuntimeError("rank 0 was not waited for")
    return composed
def stuck_verifier():
    time.sleep(60)
def train(config, world, run_dir, watchdog):
{trainer}
config.read = read
sys.modules["rlvr.trainer.loop"] = loop = types.ModuleType("rlvr.trainer.loop")
sys.modules["rlvr.trainer"] = types.ModuleType("rlvr.trainer")
loop.train = train
run_dir = Path(sys.argv[1])
if launch.is_leader():
    time.sleep(1)
    (run_dir / "config.yaml").write_text("of this start")
sys.exit(launch.start(composed, run_dir))
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
