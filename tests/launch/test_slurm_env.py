"""SLURM's variables against torchrun's, from a table of environments."""

import os

import pytest

from rlvr import launch
from rlvr.launch import slurm
from rlvr.schema.hardware import HardwareConfig

TASK = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_NODEID": "0", "SLURM_JOB_NODELIST": "n[1-2]"}
TWO_NODES = TASK | {
    "SLURM_PROCID": "1",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_NTASKS": "2",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
}
ONE_NODE = TASK | {
    "SLURM_PROCID": "1",
    "SLURM_LOCALID": "1",
    "SLURM_NTASKS": "2",
    "SLURM_STEP_NODELIST": "n1",
    "SLURM_TASKS_PER_NODE": "2",
}
UNEVEN = TASK | {
    "SLURM_PROCID": "6",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "2",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_NTASKS": "64",
    "SLURM_STEP_NODELIST": "n[1-3]",
    "SLURM_STEP_TASKS_PER_NODE": "3(x2),2",
}
BATCH = TASK | {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "2"}
TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "h1",
    "MASTER_PORT": "29500",
}


@pytest.fixture
def environment(monkeypatch):
    def only(env: dict[str, str]) -> None:
        for name in [n for n in os.environ if n.startswith("SLURM") or n in TORCHRUN]:
            monkeypatch.delenv(name)
        for name, value in env.items():
            monkeypatch.setenv(name, value)

    return only


@pytest.mark.parametrize(
    ("env", "inside", "size", "leader"),
    [
        ({}, False, 7, True),
        (TWO_NODES, True, 2, False),
        (ONE_NODE, True, 2, False),
        (ONE_NODE | {"SLURM_PROCID": "0"}, True, 2, True),
        (UNEVEN, True, 8, False),
        (BATCH | {"SLURM_STEP_ID": "batch"}, False, 7, True),
        (BATCH | {"SLURM_STEP_ID": "4294967291"}, False, 7, True),
        ({k: v for k, v in BATCH.items() if k != "SLURM_STEP_ID"}, False, 7, True),
        (BATCH | {"SLURM_STEP_ID": "4294967290"}, False, 7, True),  # the shell of salloc
        (ONE_NODE | {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, False, 7, True),  # srun --pty bash
        (TORCHRUN, True, 4, False),
        (TWO_NODES | TORCHRUN, True, 4, False),
        (TWO_NODES | TORCHRUN | {"RANK": "0"}, True, 4, True),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_who_am_i(environment, env, inside, size, leader):
    environment(env)
    assert (launch.inside(), launch.world_size(7), launch.is_leader()) == (inside, size, leader)


@pytest.mark.parametrize(
    ("env", "expected"),
    [(TWO_NODES, ("1", "2", "0", "1")), (UNEVEN, ("6", "8", "0", "2"))],
    ids=["two nodes", "uneven"],
)
def test_mapping(env, expected):
    asked = []
    found = slurm.variables(env, address=lambda nodes: asked.append(nodes) or "10.0.0.1")
    assert tuple(found[k] for k in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")) == expected
    assert found["MASTER_ADDR"] == "10.0.0.1" and asked == [env["SLURM_STEP_NODELIST"]]


def test_one_node_meets_on_loopback_and_asks_nobody():
    found = slurm.variables(ONE_NODE, address=None)
    assert tuple(found[k] for k in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")) == ("1", "2", "1", "2")
    assert found["MASTER_ADDR"] == "127.0.0.1"


def test_port_is_shared_by_tasks_and_differs_between_steps_and_jobs():
    def port(**other: str) -> int:
        return int(slurm.variables(TWO_NODES | other, address=str)["MASTER_PORT"])

    assert port() == port(SLURM_PROCID="0", SLURM_NODEID="0", SLURM_LOCALID="0")
    assert len({port(), port(SLURM_STEP_ID="1"), port(SLURM_JOB_ID="4712"), port(SLURM_STEP_ID="2")}) == 4
    assert all(20000 <= port(SLURM_JOB_ID=str(job)) < 32000 for job in range(0, 50_000_000, 1_234_567))


def test_what_the_user_has_set_is_kept():
    found = slurm.variables(TWO_NODES | {"MASTER_ADDR": "mine", "MASTER_PORT": "1234"}, address=lambda nodes: "theirs")
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == ("mine", "1234")


def test_address_of_a_name_that_does_not_resolve(tmp_path, monkeypatch):
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(
        "#!/bin/sh\n"
        'if [ "$2" = hostnames ]; then printf "virtual.invalid\\nn2\\n"; else echo "NodeName=x NodeAddr=10.1.2.3"; fi\n'
    )
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert slurm.first_address("n[1-2]") == "10.1.2.3"


def hardware(device: str, threads: int | None) -> HardwareConfig:
    config = HardwareConfig.__new__(HardwareConfig)
    config.device, config.threads = device, threads
    return config


def test_environment_of_a_rank():
    assert launch.environment(hardware("cpu", None), cores=3) == {
        "OMP_NUM_THREADS": "3",
        "TOKENIZERS_PARALLELISM": "false",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "DS_ACCELERATOR": "cpu",
        "MALLOC_MMAP_THRESHOLD_": "1048576",
        "TORCH_COMPILE_DISABLE": "1",
    }
    on_gpu = launch.environment(hardware("cuda", 5), cores=3)
    ours = {"DS_ACCELERATOR", "MALLOC_MMAP_THRESHOLD_", "TORCH_COMPILE_DISABLE"}
    assert on_gpu["OMP_NUM_THREADS"] == "5" and not ours & set(on_gpu)
    assert launch.environment(hardware("cuda", None), cores=0)["OMP_NUM_THREADS"] == "1"
