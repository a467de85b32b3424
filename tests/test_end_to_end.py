"""`rlvr train` on the real engines: one rank, two ranks under ZeRO-3, and a run that is killed and resumed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlvr.report.command import report

STEPS = 4
OVERRIDES = [
    f"steps={STEPS}",
    "algorithm=dapo",  # rejects prompts, so that slots are refilled
    "algorithm.group=4",
    "algorithm.minibatches=2",
    "rollout.prompts=8",
    "rollout.max_tokens=4",
    "validation.every=2",
    "checkpoint.every=1",
    "log.kl_every=1",
    "model.warm_accuracy=0.5",
    "data.sources.arithmetic.options.digits=1",
    "data.sources.arithmetic.train=30",
    "data.sources.arithmetic.validation=12",
    "data.sources.arithmetic.test=12",
    "hardware.threads=1",
    "hardware.sampler_sequences=64",
]
TIMED = ("time/", "speed/", "memory/", "log/")  # what differs between two equal runs


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """The user's cache, shared by the runs so that the model is warm-started once."""
    return tmp_path_factory.mktemp("cache")


def start(folder: Path, cache: Path, *overrides: str) -> subprocess.Popen:
    command = [
        sys.executable,
        "-m",
        "rlvr.cli",
        "train",
        *OVERRIDES,
        f"hydra.run.dir={folder}",
        "run.name=test",
        *overrides,
    ]
    env = os.environ | {"XDG_CACHE_HOME": str(cache), "WANDB_MODE": "offline"}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(process: subprocess.Popen) -> str:
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, out[-5000:]
    return out


def rows(folder: Path) -> list[dict]:
    """The metrics that two equal runs share."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if not k.startswith(TIMED)} for line in lines]


def sampled(folder: Path) -> list[tuple]:
    """Every sampled completion of a run, whichever rank sampled it."""
    lines = [line for file in folder.glob("rollouts/*.jsonl") for line in file.read_text().splitlines()]
    told = [json.loads(line) for line in lines]
    return sorted((t["step"], t["position"], t["tokens"], t["score"], t["trained"]) for t in told)


@pytest.fixture(scope="module")
def plain(tmp_path_factory, cache):
    """A run that nothing interrupts."""
    folder = tmp_path_factory.mktemp("plain") / "run"
    return folder, finish(start(folder, cache))


def test_a_run_leaves_all_that_it_promises(plain):
    folder, out = plain
    told = rows(folder)
    assert [row["step"] for row in told] == list(range(STEPS + 1))
    assert [row["step"] for row in told if "validation/accuracy" in row] == [0, 2, 4]
    for name in (
        "reward",
        "entropy",
        "ratio",
        "kl_step",
        "kl_ref_k1",
        "kl_ref_k3",
        "grad_norm",
        "lr",
        "mismatch_gap",
        "clip_high_fraction",
    ):
        assert all(f"train/{name}" in row for row in told[1:]), name
    assert told[1]["train/mismatch_gap"] < 1e-4
    assert 0 < told[1]["train/kl_ref_k3"] < told[STEPS]["train/kl_ref_k3"] < 1  # the policy leaves its reference
    assert (folder / "curve.png").stat().st_size > 10_000
    assert (folder / "checkpoints" / f"step_{STEPS:06d}" / "complete.json").exists()
    assert list((folder / "wandb").glob("offline-run-*"))
    for path in ("curve.png", "offline-run", "checkpoints", "validation, step 0"):
        assert path in out.replace("\n", "")


def test_a_rerun_is_the_same_run_and_a_report_tells_of_it(plain, cache, tmp_path):
    folder, _ = plain
    env = os.environ | {"XDG_CACHE_HOME": str(cache), "WANDB_MODE": "offline"}
    command = [sys.executable, "-m", "rlvr.cli", "rerun", str(folder), "--out", str(tmp_path / "again")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "not as it was then:\n  nothing\n" in done.stdout and f"equal: {STEPS + 1} rows" in done.stdout
    for role, rows_kept in (("validation", 3 * 12), ("test", 12)):
        assert len((tmp_path / "again" / f"{role}.jsonl").read_text().splitlines()) == rows_kept
    assert report([str(tmp_path / "again")]) == 0
    page = (tmp_path / "again" / "report" / "report.html").read_text()
    assert "no interval (1 seed)" in page and "Rejected by the gate" in page


def test_the_written_model_is_a_hugging_face_model(plain):
    folder, _ = plain
    model = AutoModelForCausalLM.from_pretrained(folder / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    ids = tokenizer("2+3=", return_tensors="pt").input_ids
    answer = model.generate(ids, max_new_tokens=3, do_sample=False)
    assert answer.shape[1] > ids.shape[1]


def test_two_ranks_under_zero_3_run_the_same_run(plain, cache, tmp_path):
    finish(start(tmp_path / "run", cache, "hardware.ranks=2", "hardware.zero=3"))
    one, two = rows(plain[0])[1], rows(tmp_path / "run")[1]
    assert [s for s in sampled(tmp_path / "run") if s[0] == 1] == [s for s in sampled(plain[0]) if s[0] == 1]
    for name in ("train/loss", "train/grad_norm", "train/reward", "rollout/score", "rollout/kept"):
        assert two[name] == pytest.approx(one[name], rel=1e-5, abs=1e-8), name


def test_a_killed_run_goes_on_as_if_never_stopped(plain, cache, tmp_path):
    folder = tmp_path / "run"
    killed = start(folder, cache)
    deadline = time.monotonic() + 240
    while not (folder / "checkpoints" / "step_000002" / "complete.json").exists():
        assert killed.poll() is None, killed.communicate()[0][-5000:]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    out = finish(start(folder, cache))
    assert "resuming after step" in out
    assert rows(folder) == rows(plain[0])
    assert sampled(folder) == sampled(plain[0])


def test_rollouts_drawn_ahead_train_and_resume(cache, tmp_path):
    given = ("rollout.async_steps=1", "steps=5", "checkpoint.every=3", "validation.every=0", "log.wandb=off")
    folder, again = tmp_path / "run", tmp_path / "again"
    finish(start(folder, cache, *given))
    told = rows(folder)
    assert [row["rollout/staleness"] for row in told[1:]] == [0, 0, 1, 0, 1]
    assert all("train/mismatch_gap" in row for row in told[1:] if not row["rollout/staleness"])
    late = [row for row in told[1:] if row["rollout/staleness"]]
    assert all(row["train/stale_gap"] > 1e-4 and 0.5 < row["train/stale_ess"] < 1 for row in late)
    shutil.copytree(folder, again)
    shutil.rmtree(again / "checkpoints" / "step_000005")
    (again / "summary.json").unlink()
    assert "resuming after step 3" in finish(start(again, cache, *given))
    assert rows(again) == told and sampled(again) == sampled(folder)


def test_a_finished_run_is_left_alone(plain, cache):
    folder, _ = plain
    before = (folder / "metrics.jsonl").read_bytes()
    out = finish(start(folder, cache))
    assert "complete" in out
    assert (folder / "metrics.jsonl").read_bytes() == before
