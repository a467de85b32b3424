"""Weights pushed from the learner into the real vLLM: every tensor family arrives, tied output heads included."""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from tests.engine.launch import on_ranks
from tests.engine.models import saved

EMBEDDINGS, HEAD = "model.embed_tokens.weight", "lm_head.weight"
CASES = {
    "tied": dict(family="llama", tied=True),
    "untied": dict(family="qwen2", tied=False),
    "2 ranks, ZeRO 3, tied": dict(family="qwen3", tied=True, ranks=2, zero=3),
    "tensor parallel 2, ZeRO 2": dict(family="qwen2", tied=True, ranks=2, zero=2, parallel=2),
    "tied, a copy of the head in the files": dict(family="llama", tied=True, named=[EMBEDDINGS, HEAD]),
    "tied, by the head's name in the files": dict(family="llama", tied=True, named=[HEAD]),
    "tied, another head in the files": dict(family="qwen2", tied=True, named=[EMBEDDINGS, HEAD], factor=2.0),
}


def renamed(folder: str, names: list[str], factor: float) -> None:
    """Write the embeddings under all of `names`, the last of them times `factor`."""
    path = Path(folder) / "model.safetensors"
    tensors = load_file(path)
    weight = tensors.pop(EMBEDDINGS)
    tensors |= {name: weight.clone() for name in names}
    tensors[names[-1]] *= factor
    save_file(tensors, path, {"format": "pt"})


@pytest.mark.parametrize("name", CASES)
def test_every_family_reaches_the_sampler(tmp_path, name):
    case = CASES[name]
    folder = saved(tmp_path / "model", case["family"], case["tied"])
    if "named" in case:
        renamed(folder, case["named"], case.get("factor", 1.0))
    out = tmp_path / "out.json"
    on_ranks(
        case.get("ranks", 1), "tests.engine.transfer_worker", folder, case.get("zero", 0), case.get("parallel", 1), out
    )
    told = json.loads(out.read_text())
    assert "holds weights None" in told["refused"]
    assert told["finished"] < 3
    assert len(told["gaps"]) > 8
    assert all(gap < 1e-4 for gap in told["gaps"].values()), told["gaps"]
