"""`rlvr eval` on the real engine: one rank and two, killed and resumed, asked again; a benchmark of one's own."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from rlvr.config import compose, write
from rlvr.engine.tiny import character_tokenizer, tiny_model
from rlvr.evaluation.compare import compare
from rlvr.schema.model import TinyConfig

LEAD = 700  # characters: of so long prompts, vLLM would read some in pieces, with a seeded generator each
OWN = """
defaults:
  - /data@benchmarks.sums.data: arithmetic
  - _self_
name: mine
benchmarks:
  sums:
    data: {sources: {arithmetic: {options: {digits: 1}, train: 20, validation: 10, test: 20}}}
    role: test
    rows: 0
    samples: 4
    temperature: 1.0
    top_p: 1.0
    max_tokens: 6
    k: []
  rows:
    data:
      name: rows
      template: "LEAD{question}"
      system: null
      max_prompt_tokens: 720
      max_tokens: 6
      too_long: error
      ungradable: error
      overlap: error
      survey: null
      sources:
        file:
          {kind: file, path: null, subset: null, train: null, validation: null, test: own.jsonl, question: q, answer: a,
           verifier: number, weight: 1.0}
    role: test
    rows: 0
    samples: 2
    temperature: 0.8
    top_p: 0.9
    max_tokens: 6
    k: [2]
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A directory with a run whose model adds a little, a benchmark of one's own, and a cache."""
    here = tmp_path_factory.mktemp("place")
    overrides = ["data.sources.arithmetic.options.digits=1"]
    overrides += [
        f"data.sources.arithmetic.{role}={n}" for role, n in (("train", 20), ("validation", 10), ("test", 20))
    ]
    config = compose([*overrides, "run.name=run", "model.warm_updates=60", "model.warm_accuracy=0.6"])
    (here / "run").mkdir()
    write(config, here / "run" / "config.yaml")
    assert isinstance(config.model, TinyConfig)
    torch.set_num_threads(1)
    tokenizer = character_tokenizer()
    rows = [(f"{a}+{b}=", str(a + b)) for a in range(10) for b in range(a)]
    examples = [(tuple(tokenizer(q).input_ids), (*tokenizer(a).input_ids, tokenizer.eos_token_id)) for q, a in rows]
    os.environ["XDG_CACHE_HOME"] = str(here / "models")
    try:
        tiny_model(config.model, examples, lambda share: None).rename(here / "run" / "model")
    finally:
        del os.environ["XDG_CACHE_HOME"]
    (here / "conf" / "eval").mkdir(parents=True)
    (here / "conf" / "eval" / "mine.yaml").write_text(OWN.replace("LEAD", "." * LEAD))
    (here / "own.jsonl").write_text("".join(json.dumps({"q": f"{i}+{i}=", "a": str(2 * i)}) + "\n" for i in range(6)))
    return here


def start(place: Path, name: str, cache: str, *overrides: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "rlvr.cli", "eval", "--config-dir", "conf", "checkpoint=run", "eval=mine"]
    command += [f"run.name={name}", "hardware.threads=1", "hardware.sampler_sequences=4", *overrides]
    env = os.environ | {"XDG_CACHE_HOME": str(place / cache)}
    return subprocess.Popen(command, cwd=place, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(process: subprocess.Popen) -> str:
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, out[-5000:]
    return out


def told(place: Path, name: str) -> tuple[dict, list[str]]:
    """The numbers and the samples of an evaluation."""
    folder = place / "evaluations" / name
    result = json.loads((folder / "evaluation.json").read_text())
    return result["benchmarks"], [(folder / "samples" / f"{b}.jsonl").read_text() for b in ("sums", "rows")]


def drawn(place: Path, cache: str) -> int:
    files = (place / cache / "rlvr" / "evaluations").glob("*/drawn-*.jsonl")
    return sum(file.read_text().count("\n") for file in files)


@pytest.fixture(scope="module")
def plain(place) -> str:
    return finish(start(place, "plain", "cache"))


def test_an_evaluation_leaves_numbers_samples_and_a_report(place, plain):
    benchmarks, (sums, rows) = told(place, "plain")
    first = json.loads(sums.splitlines()[0])
    assert {"problem", "sample", "seed", "tokens", "response", "score", "answer", "truncated", "source"} <= first.keys()
    assert (sums.count("\n"), rows.count("\n")) == (80, 12)
    score = benchmarks["sums"]["metrics"]["score"]
    assert 0 < score["low"] < score["value"] < score["high"] < 1
    assert list(benchmarks["sums"]["metrics"]) == ["score", "pass@1", "pass@2", "pass@4", "majority"]
    assert list(benchmarks["rows"]["metrics"]) == ["score", "pass@2", "majority"]
    assert benchmarks["sums"]["unjudged"] == 0
    assert benchmarks["sums"]["standing"]["label"] == "held out"
    report = (place / "evaluations" / "plain" / "report.md").read_text()
    assert report in plain and "| sums" in report and "Checkpoint: the last step of the run" in report


def test_asked_again_it_is_read(place, plain):
    before = drawn(place, "cache")
    out = finish(start(place, "again", "cache"))
    assert drawn(place, "cache") == before == 92 and "% of" not in out
    assert told(place, "again") == told(place, "plain")


def test_two_ranks_and_a_kill_change_nothing(place, plain):
    killed = start(place, "ranks", "other")
    deadline = time.monotonic() + 200
    while not 0 < drawn(place, "other") < 92:
        assert killed.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    before = drawn(place, "other")
    assert 0 < before < 92 and not (place / "evaluations" / "ranks" / "evaluation.json").exists()
    finish(start(place, "ranks", "other", "hardware.ranks=2"))
    assert drawn(place, "other") == 92
    assert told(place, "ranks") == told(place, "plain")
    difference = compare(place / "evaluations" / "plain", place / "evaluations" / "ranks")
    assert difference["benchmarks"]["sums"]["score"]["p"] == 1.0 and difference["versions"] == []
