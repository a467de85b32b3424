"""Changing `hardware.*` does not change the gradient: ZeRO stages, ranks, micro-batches, packing, checkpointing."""

import json

import pytest
import torch

from tests.engine.launch import on_ranks
from tests.engine.models import ONE_ULP, saved


def case(ranks=1, average="token", resume=False, refuse=False, **hardware):
    return {"ranks": ranks, "average": average, "resume": resume, "refuse": refuse, "hardware": hardware}


PLAIN = {"token": case(), "sequence": case(average="sequence")}
CASES = {
    "small micro-batches": case(tokens_per_micro_batch=8),
    "padded": case(attention="padded", tokens_per_micro_batch=20),
    "gradient checkpointing": case(gradient_checkpointing=True),
    "ZeRO 1": case(zero=1, tokens_per_micro_batch=12),
    "ZeRO 2": case(zero=2, tokens_per_micro_batch=12),
    "ZeRO 3": case(zero=3, tokens_per_micro_batch=12, average="sequence", gradient_checkpointing=True),
    "resumed": case(resume=True),
    "2 ranks": case(ranks=2, tokens_per_micro_batch=12),
    "2 ranks, ZeRO 1": case(ranks=2, zero=1, tokens_per_micro_batch=12),
    "2 ranks, ZeRO 2": case(ranks=2, zero=2, tokens_per_micro_batch=8, average="sequence"),
    "2 ranks, ZeRO 3": case(ranks=2, zero=3, tokens_per_micro_batch=8),
    "2 ranks, ZeRO 3, resumed": case(ranks=2, zero=3, resume=True),
    "refusals": case(refuse=True),
    "refusals, ZeRO 1": case(zero=1, refuse=True),
    "refusals, ZeRO 2, offloaded": case(zero=2, offload_optimizer=True, refuse=True),
    "2 ranks, refusals": case(ranks=2, refuse=True),
    "2 ranks, refusals, ZeRO 2": case(ranks=2, zero=2, refuse=True),
    "2 ranks, refusals, ZeRO 3": case(ranks=2, zero=3, refuse=True),
}
HALF = {f"bf16, ZeRO {stage}": case(zero=stage, refuse=True, dtype="bf16") for stage in range(4)}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """All cases, one process per rank for all that have the same number of ranks."""
    folder, out = saved(tmp_path_factory.mktemp("model"), "qwen2", tied=True), tmp_path_factory.mktemp("out")
    told = {}
    for ranks in (1, 2):
        chosen = {name: c for name, c in (PLAIN | CASES | HALF).items() if c["ranks"] == ranks}
        on_ranks(ranks, "tests.engine.learner_worker", folder, json.dumps(chosen), out / f"{ranks}.pt")
        told |= torch.load(out / f"{ranks}.pt")
    return told


def test_the_plain_run_moves_every_tensor(results):
    assert all(norm > 0 for norm in results["token"]["norms"])
    assert all((moved != 0).any() for moved in results["token"]["moved"].values())
    assert results["token"]["norms"] != pytest.approx(results["sequence"]["norms"], rel=1e-2)


@pytest.mark.parametrize("name", CASES)
def test_hardware_does_not_change_the_gradient(results, name):
    got, wanted = results[name], results[CASES[name]["average"]]
    assert got["pieces"] > 1 or "tokens_per_micro_batch" not in CASES[name]["hardware"]
    assert got["norms"] == pytest.approx(wanted["norms"], rel=1e-5)
    for weight, moved in wanted["moved"].items():
        torch.testing.assert_close(
            got["moved"][weight], moved, rtol=1e-4, atol=ONE_ULP, msg=lambda text, w=weight: f"{w}: {text}"
        )


@pytest.mark.parametrize("name", [name for name, c in (CASES | HALF).items() if c["refuse"]])
def test_a_refused_update_leaves_weights_as_they_are(results, name):
    """The moments too: the updates that follow are those of a run without it, which the test above compares."""
    assert results[name]["held"]
