"""The gradient of every algorithm is the same on any hardware: ranks, ZeRO stages, micro-batches, packing."""

import json

import pytest
import torch

from tests.algorithms.test_laws import CASES
from tests.engine.launch import on_ranks
from tests.engine.models import ONE_ULP, saved

PLAIN = "1 rank"
HARDWARE = {
    1: {
        PLAIN: {},
        "1 rank, ZeRO 2, small micro-batches": {"zero": 2, "tokens_per_micro_batch": 40},
        "1 rank, shared prompts": {"share_prompts": True},
    },
    2: {
        "2 ranks": {"tokens_per_micro_batch": 40},
        "2 ranks, ZeRO 2, shared prompts": {"zero": 2, "share_prompts": True, "tokens_per_micro_batch": 20},
        "2 ranks, ZeRO 3, padded": {"zero": 3, "tokens_per_micro_batch": 80, "attention": "padded"},
    },
}
OTHERS = [label for labels in HARDWARE.values() for label in labels if label != PLAIN]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """By algorithm and hardware; one process per rank for all that have the same number of ranks."""
    folder, out = saved(tmp_path_factory.mktemp("model"), "qwen2", tied=True), tmp_path_factory.mktemp("out")
    told = {}
    for ranks, hardwares in HARDWARE.items():
        on_ranks(ranks, "tests.engine.objectives_worker", folder, json.dumps(hardwares), out / f"{ranks}.pt")
        told |= torch.load(out / f"{ranks}.pt")
    return told


@pytest.mark.parametrize("name", CASES)
def test_every_algorithm_trains(results, name):
    plain = results[name, PLAIN]
    norms = [value for metric, value in plain["metrics"].items() if metric.endswith("grad_norm")]
    assert norms and all(norm > 0 for norm in norms)
    assert all((moved != 0).any() for moved in plain["moved"].values())


@pytest.mark.parametrize("label", OTHERS)
@pytest.mark.parametrize("name", CASES)
def test_hardware_changes_neither_metrics_nor_weights(results, name, label):
    got, wanted = results[name, label], results[name, PLAIN]
    assert got["metrics"] == pytest.approx(wanted["metrics"], rel=1e-5, abs=1e-7)
    for weight, moved in wanted["moved"].items():
        torch.testing.assert_close(
            got["moved"][weight], moved, rtol=1e-4, atol=ONE_ULP, msg=lambda text, w=weight: f"{w}: {text}"
        )
