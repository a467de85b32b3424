"""What is missing is drawn, what is there is not, and what could not be judged is judged again."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from rlvr.evaluation.draw import Drawer, Problems
from rlvr.evaluation.settings import compose_eval
from rlvr.evaluation.store import SampleStore, identity_of
from rlvr.records import Completion, Prompt
from rlvr.schema.eval import settled
from rlvr.world import World

ALONE = World(rank=0, size=1, local_rank=0, local_size=1, device=torch.device("cpu"), backend="gloo")
CONFIG = compose_eval()
SUM = Prompt(id="", source="arithmetic", text="", tokens=(1,), answer="", verifier="number")
SUMS = [replace(SUM, id=f"arithmetic/test/{i}", answer=str(i)) for i in range(3)]


class Model:
    """Answers 0 to everything; dies after some completions."""

    def __init__(self, dies_after=None):
        self.seeds, self.dies_after = [], dies_after

    def generate(self, orders, decoding, version, on_done):
        for index, order in enumerate(orders):
            if len(self.seeds) == self.dies_after:
                raise KeyboardInterrupt
            self.seeds.append((order.prompt.id, order.seed))
            on_done(index, Completion(tokens=(1, 2), logprobs=(), text="0", truncated=False, source="policy"))


def complete(model, root, samples=2):
    own = replace(settled(CONFIG.eval)["sums"], samples=samples)
    problems = Problems("sums", own, [], SUMS, 0)
    drawer = Drawer(CONFIG, ALONE, lambda: (model, "v"), lambda phase: None, lambda text: None)
    return drawer.complete(problems, SampleStore(root, {"model": "m"}, "rank0"))


def test_a_killed_evaluation_goes_on_and_a_finished_one_is_read(tmp_path):
    whole = complete(Model(), tmp_path / "whole")
    killed = Model(dies_after=4)
    with pytest.raises(KeyboardInterrupt):
        complete(killed, tmp_path / "killed")
    assert len(killed.seeds) == 4
    rest = Model()
    assert complete(rest, tmp_path / "killed") == whole
    assert len(rest.seeds) == 2 and not set(rest.seeds) & set(killed.seeds)
    assert complete(Model(dies_after=0), tmp_path / "killed") == whole
    assert [line["score"] for line in whole] == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert whole[0]["answer"] == "0" and len({line["seed"] for line in whole}) == 6


def test_more_samples_go_on_where_fewer_ended(tmp_path):
    few, more = complete(Model(), tmp_path), Model()
    many = complete(more, tmp_path, samples=3)
    assert len(more.seeds) == 3 and [line for line in many if line["sample"] < 2] == few


def test_what_could_not_be_judged_is_judged_again_but_not_drawn_again(tmp_path):
    whole = complete(Model(), tmp_path)
    (judged,) = tmp_path.glob("*/judged-*.jsonl")
    lines = judged.read_text().splitlines(keepends=True)
    judged.write_text(lines[0].replace('"error": null', '"error": "timeout"') + "".join(lines[1:-1]) + lines[-1][:9])
    assert complete(Model(dies_after=0), tmp_path) == whole


def test_a_model_is_what_its_files_are(tmp_path):
    for name, weights in (("a", "1"), ("b", "1"), ("c", "2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_text(weights)
        (tmp_path / name / "README.md").write_text(name)
    a, b, c = (identity_of(tmp_path / name) for name in "abc")
    assert a == b != c


def test_samples_of_other_hosts_that_never_show_up_are_missed(tmp_path, monkeypatch):
    monkeypatch.setattr("rlvr.evaluation.draw.VISIBLE", 0.0)
    silent = SimpleNamespace(generate=lambda *_: None)
    with pytest.raises(RuntimeError, match="do all hosts share this folder"):
        complete(silent, tmp_path)
