"""Resuming on the real engines: more algorithms, other ranks, and the model that comes out of a checkpoint."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlvr.cli import main
from rlvr.trainer.checkpoint import Checkpoints
from tests.test_end_to_end import cache, finish, rows, sampled, start  # noqa: F401

COMMON = ("steps=3", "rollout.prompts=4", "checkpoint.keep=9", "checkpoint.model=true", "log.wandb=off")
KINDS = {
    "a reference that was reset": ("algorithm=armor", "algorithm.group=4", "algorithm.reset_every=1"),
    "a critic on two ranks": ("algorithm=ppo", "algorithm.minibatches=1", "hardware.ranks=2", "hardware.zero=3"),
}
VLLM = """
import json, sys
from vllm import LLM, SamplingParams
llm = LLM(model=sys.argv[1], max_model_len=64, enforce_eager=True, dtype="float32")
told = llm.generate(json.loads(sys.argv[2]), SamplingParams(temperature=0, max_tokens=4), use_tqdm=False)
print("ANSWERS", json.dumps([out.outputs[0].text for out in told]))
"""


def go(folder, cache, kind, *overrides):  # noqa: F811
    return finish(start(folder, cache, *COMMON, *KINDS[kind], *overrides))


@pytest.fixture(scope="module", params=KINDS)
def undisturbed(request, tmp_path_factory, cache):  # noqa: F811
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    go(folder, cache, request.param)
    return request.param, folder


def go_back(folder, there, step):
    """A copy of a run as a power cut after `step` would leave it, a torn line at the end of its records."""
    shutil.copytree(folder, there)
    for path in there.glob("checkpoints/step_*"):
        if int(path.name[5:]) > step:
            shutil.rmtree(path)
    (there / "summary.json").unlink()
    for path in (there / "metrics.jsonl", *there.glob("rollouts/*.jsonl"), *there.glob("prompts/*.jsonl")):
        with path.open("a") as file:
            file.write('{"step": 4, "torn')


def test_a_resumed_run_is_the_same_run(undisturbed, cache, tmp_path):  # noqa: F811
    kind, folder = undisturbed
    go_back(folder, tmp_path / "run", 1)
    assert "resuming after step 1" in go(tmp_path / "run", cache, kind)
    assert rows(tmp_path / "run") == rows(folder)
    assert sampled(tmp_path / "run") == sampled(folder)
    for name in ("samples.jsonl", "events.jsonl"):
        one, other = folder / name, tmp_path / "run" / name
        assert one.exists() == other.exists() and (not one.exists() or one.read_text() == other.read_text())
    one, other = (load_file(run / "model" / "model.safetensors") for run in (folder, tmp_path / "run"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_on_other_ranks_it_draws_the_same_prompts_and_trains_on(undisturbed, cache, tmp_path):  # noqa: F811
    kind, folder = undisturbed
    if "hardware.ranks=2" not in KINDS[kind]:
        pytest.skip("once is enough")
    go_back(folder, tmp_path / "run", 2)
    out = go(tmp_path / "run", cache, kind, "hardware.ranks=1", "hardware.zero=0")
    assert "hardware.ranks: 2 -> 1" in out and "hardware.zero: 3 -> 0" in out
    here, there = ([row[:3] for row in sampled(run)] for run in (tmp_path / "run", folder))
    assert here == there
    one, two = rows(tmp_path / "run")[3], rows(folder)[3]
    for name in ("train/loss", "train/grad_norm", "train/reward", "rollout/score", "train/critic/loss"):
        assert one[name] == pytest.approx(two[name], rel=1e-4, abs=1e-7), name


def test_a_checkpoint_is_exported_from_shards(undisturbed, tmp_path, monkeypatch, capsys):
    _, folder = undisturbed
    monkeypatch.setattr(sys, "argv", ["rlvr", "export", str(folder), "--to", str(tmp_path / "hf")])
    assert main() == 0
    assert "step_000003" in capsys.readouterr().out
    exported, wanted = (load_file(Path(run) / "model.safetensors") for run in (tmp_path / "hf", folder / "model"))
    assert exported.keys() == wanted.keys()
    assert all(torch.equal(exported[name], wanted[name]) for name in wanted)
    one, other = (AutoModelForCausalLM.from_pretrained(where) for where in (tmp_path / "hf", folder / "model"))
    ids = AutoTokenizer.from_pretrained(tmp_path / "hf")("2+3=", return_tensors="pt").input_ids
    assert torch.equal(one(ids).logits, other(ids).logits)
    monkeypatch.setattr(sys, "argv", [*sys.argv[:4], str(tmp_path / "half"), "--dtype", "bfloat16"])
    assert main() == 0
    half = AutoModelForCausalLM.from_pretrained(tmp_path / "half", dtype="auto")
    assert half.dtype == torch.bfloat16


def test_vllm_answers_with_the_export_as_the_sampler_did(undisturbed, tmp_path, monkeypatch):
    kind, folder = undisturbed
    if "hardware.ranks=2" not in KINDS[kind]:
        pytest.skip("once is enough")
    monkeypatch.setattr(sys, "argv", ["rlvr", "export", str(folder), "--to", str(tmp_path / "hf")])
    assert main() == 0
    lines = (folder / "samples.jsonl").read_text().splitlines()
    last = [row for row in map(json.loads, lines) if row["step"] == 3]
    command = [sys.executable, "-c", VLLM, str(tmp_path / "hf"), json.dumps([row["prompt"] for row in last])]
    alone = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"}
    alone["TORCH_COMPILE_DISABLE"] = "1"
    done = subprocess.run(command, env=os.environ | alone, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("ANSWERS"))[8:])
    assert told == [row["response"] for row in last]


def test_a_reference_is_the_one_that_it_was(undisturbed):
    """By hash: the base model's until it is reset, and another one after each reset."""
    kind, folder = undisturbed
    steps = sorted(folder.glob("checkpoints/step_*"))
    told = [json.loads((path / "reference" / "reference.json").read_text()) for path in steps]
    moved = "reset" in kind
    assert [t["version"] for t in told] == ([1, 2, 3] if moved else [0, 0, 0])
    assert len({t["identity"] for t in told}) == (3 if moved else 1)
    assert [Checkpoints.progress_of(path).step for path in steps] == [1, 2, 3]
