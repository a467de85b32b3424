"""Weights pushed from the learner into the real vLLM: every tensor family arrives, tied output heads included."""

import json

import pytest

from tests.engine.launch import on_ranks
from tests.engine.models import saved

CASES = {
    "tied": dict(family="llama", tied=True),
    "untied": dict(family="qwen2", tied=False),
    "2 ranks, ZeRO 3, tied": dict(family="qwen3", tied=True, ranks=2, zero=3),
    "tensor parallel 2, ZeRO 2": dict(family="qwen2", tied=True, ranks=2, zero=2, parallel=2),
}


@pytest.mark.parametrize("name", CASES)
def test_every_family_reaches_the_sampler(tmp_path, name):
    case = CASES[name]
    folder = saved(tmp_path / "model", case["family"], case["tied"])
    out = tmp_path / "out.json"
    on_ranks(
        case.get("ranks", 1), "tests.engine.transfer_worker", folder, case.get("zero", 0), case.get("parallel", 1), out
    )
    told = json.loads(out.read_text())
    assert "holds weights None" in told["refused"]
    assert told["finished"] < 3
    assert len(told["gaps"]) > 8
    assert all(gap < 1e-4 for gap in told["gaps"].values()), told["gaps"]
