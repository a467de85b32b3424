"""Collectives of two to four gloo ranks, each a process of its own."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from rlvr.world import World

ROOT = Path(__file__).parents[1]

VERBS = """
import json, torch
from rlvr.world import World
world = World.from_env("cpu", 30)
x = torch.tensor([1.0, 10.0], dtype=torch.float64, requires_grad=True) * (world.rank + 1)
total = world.sum(x)
print(json.dumps({
    "sum": total.tolist(), "kept": x.tolist(), "learns": total.requires_grad, "dtype": str(total.dtype),
    "strided": world.sum(torch.arange(6.0).view(2, 3).T).tolist(),
    "any": world.any(world.rank == 1), "none": world.any(False), "max": world.max(0.5 - world.rank),
    "gather": world.gather({"rank": world.rank}), "broadcast": world.broadcast(f"from {world.rank}", source=1),
    "pairs": world.subgroup_gather(world.rank, 2), "single": world.subgroup_gather(world.rank, 1),
    "whole": world.subgroup_gather(world.rank, world.size), "again": world.subgroup_gather(-world.rank, 2),
    "local": [world.local_rank, world.local_size],
}))
world.close()
"""

DEAD_PEER = """
import os, torch
from rlvr.world import World
world = World.from_env("cpu", 60)
world.barrier()
if world.rank == 1:
    os._exit(9)
world.sum(torch.ones(1))
"""

SILENT_PEER = """
import time
from rlvr.world import World
world = World.from_env("cpu", 2)
if world.rank == 1:
    time.sleep(60)
world.barrier()
"""


def ranks(script: str, size: int) -> list[subprocess.Popen]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = os.environ | {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    shared |= {"OMP_NUM_THREADS": "1"}
    return [
        subprocess.Popen(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]


def test_verbs_agree_on_all_ranks():
    processes = ranks(VERBS, 4)
    answers = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, answers
    for rank, found in enumerate(json.loads(out.splitlines()[-1]) for out, _ in answers):
        pair = [rank - rank % 2, rank - rank % 2 + 1]
        assert found == {
            "sum": [10.0, 100.0],
            "kept": [rank + 1.0, 10.0 * (rank + 1)],
            "learns": False,
            "dtype": "torch.float64",
            "strided": [[0.0, 12.0], [4.0, 16.0], [8.0, 20.0]],
            "any": True,
            "none": False,
            "max": 0.5,
            "gather": [{"rank": r} for r in range(4)],
            "broadcast": "from 1",
            "pairs": pair,
            "single": [rank],
            "whole": [0, 1, 2, 3],
            "again": [-r for r in pair],
            "local": [rank, 4],
        }


def test_dead_peer_is_an_error_in_seconds():
    survivor, dead = ranks(DEAD_PEER, 2)
    assert dead.wait(timeout=60) == 9
    died = time.monotonic()
    _, errors = survivor.communicate(timeout=30)
    assert survivor.returncode == 1 and "RuntimeError" in errors
    assert time.monotonic() - died < 10


def test_silent_peer_is_an_error_after_the_timeout():
    waiting, silent = ranks(SILENT_PEER, 2)
    _, errors = waiting.communicate(timeout=45)
    silent.kill()
    silent.communicate()
    assert waiting.returncode == 1 and "RuntimeError" in errors


def test_alone_has_a_process_group_and_leaves_no_trace(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    world = World.from_env("cpu", 30)
    assert torch.distributed.is_initialized() and os.environ["RANK"] == "0"
    x = torch.tensor([1, 2])
    total = world.sum(x)
    assert total.tolist() == [1, 2] and total.data_ptr() != x.data_ptr()
    assert (world.any(True), world.any(False), world.max(3), world.gather("a"), world.broadcast(5)) == (
        True, False, 3, ["a"], 5,
    )  # fmt: skip
    world.close()
    assert not torch.distributed.is_initialized() and "RANK" not in os.environ


def test_half_an_environment_is_refused(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    for name in ("WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(RuntimeError, match="RANK is set but not WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT"):
        World.from_env("cpu", 30)


def test_groups_must_divide_the_ranks():
    world = World(rank=0, size=3, local_rank=0, local_size=3, device=torch.device("cpu"), backend="gloo")
    with pytest.raises(ValueError, match="groups of 2 ranks do not divide the 3"):
        world.subgroup_gather(0, 2)
