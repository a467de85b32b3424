"""Changing `hardware.*` does not change the gradient: ZeRO stages, ranks, micro-batches, packing, checkpointing."""

import os
import socket
import subprocess
import sys

import pytest
import torch

from tests.engine.models import saved


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("model"), "qwen2", tied=True)


def run(folder, out, *, average="token", zero=0, ranks=1, tokens=1000, attention="packed", checkpointing=0, resume=""):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = [folder, out, average, zero, tokens, attention, checkpointing, resume]
    command = [sys.executable, "-m", "tests.engine.learner_worker", *map(str, arguments)]
    env = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
    started = [
        subprocess.Popen(
            command,
            env=env | {"RANK": str(r), "LOCAL_RANK": str(r), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for r in range(ranks)
    ]
    for process in started:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors[-3000:]
    return torch.load(out)


@pytest.fixture(scope="module")
def plain(folder, tmp_path_factory):
    return {average: run(folder, tmp_path_factory.mktemp("out") / "plain.pt", average=average) for average in ("token", "sequence")}


CASES = {
    "small micro-batches": dict(tokens=8),
    "padded": dict(attention="padded", tokens=20),
    "gradient checkpointing": dict(checkpointing=1),
    "2 ranks": dict(ranks=2, tokens=12),
    "ZeRO 2": dict(zero=2, tokens=12),
    "ZeRO 2, 2 ranks": dict(zero=2, ranks=2, tokens=8, average="sequence"),
    "ZeRO 3, 2 ranks": dict(zero=3, ranks=2, tokens=8),
    "ZeRO 3, checkpointing": dict(zero=3, checkpointing=1, tokens=12, average="sequence"),
}


@pytest.mark.parametrize("name", CASES)
def test_hardware_does_not_change_the_gradient(folder, plain, tmp_path, name):
    case = CASES[name]
    got, wanted = run(folder, tmp_path / "got.pt", **case), plain[case.get("average", "token")]
    assert got["pieces"] > 1 or "tokens" not in case
    assert got["norms"] == pytest.approx(wanted["norms"], rel=1e-5)
    for weight, moved in wanted["moved"].items():
        torch.testing.assert_close(got["moved"][weight], moved, rtol=1e-4, atol=1e-7, msg=lambda text, w=weight: f"{w}: {text}")


@pytest.mark.parametrize("case", [dict(), dict(zero=3, ranks=2)], ids=["ZeRO 0", "ZeRO 3, 2 ranks"])
def test_a_saved_learner_goes_on_as_if_never_stopped(folder, plain, tmp_path, case):
    got = run(folder, tmp_path / "got.pt", resume=tmp_path / "state", **case)
    assert got["norms"] == pytest.approx(plain["token"]["norms"], rel=1e-5)
    for weight, moved in plain["token"]["moved"].items():
        torch.testing.assert_close(got["moved"][weight], moved, rtol=1e-4, atol=1e-7)
