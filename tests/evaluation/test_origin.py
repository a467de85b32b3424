"""What `checkpoint` may be, and what the rows of a benchmark were to the run that made it."""

import json
import shutil

import pytest

from rlvr.config import compose, write
from rlvr.data.sources import load_rows
from rlvr.evaluation.origin import Origin, origin_of, resolve
from rlvr.evaluation.settings import compose_eval
from rlvr.evaluation.standing import standings
from rlvr.keys import ConfigError
from rlvr.records import Row
from rlvr.rollout.judge import check_answer
from tests.trainer.test_checkpoint import saved

FEW = ["data.sources.arithmetic.train=40", "data.sources.arithmetic.validation=12"]


def resolved(*overrides):
    return resolve(compose_eval(overrides), {override.partition("=")[0] for override in overrides})


def model(folder):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_text("")
    return folder


@pytest.fixture
def run(tmp_path):
    """A run directory without a model."""
    folder = tmp_path / "runs" / "first"
    folder.mkdir(parents=True)
    write(compose(["run.name=first", *FEW]), folder / "config.yaml")
    return folder


def test_a_run_says_how_its_model_is_spoken_to(run):
    model(run / "model")
    (run / "metrics.jsonl").write_text(json.dumps({"step": 3}) + "\n" + json.dumps({"step": 4}) + "\n")
    for given in (run, run / "model"):
        config = resolved(f"checkpoint={given}")
        assert (config.model.kind, config.model.chat, config.model.path) == ("hub", "text", str(run / "model"))
        assert config.origin == str(run)
        assert origin_of(config).chosen == "the last step of the run, 4; no score chose it"
    assert resolved(f"checkpoint={run}", "model.chat=auto").model.chat == "auto"
    with pytest.raises(ConfigError, match="model=tiny is set but has no effect"):
        resolved(f"checkpoint={run}", "model=tiny")


def test_a_run_that_went_back_to_its_best_validation_says_so(run):
    model(run / "model")
    (run / "metrics.jsonl").write_text(json.dumps({"step": 4, "event/restore_best": 1.0}) + "\n")
    assert "went back to its best validation" in origin_of(resolved(f"checkpoint={run}")).chosen


def test_a_checkpoint_may_be_named(tmp_path):
    """Its weights stand in: nothing is loaded here."""
    (tmp_path / "runs" / "first").mkdir(parents=True)
    folder = saved(tmp_path / "runs" / "first", 1, 2, 3, overrides=("checkpoint.keep=3", *FEW)).folder
    run, path = folder.parent, folder / "step_000002"
    write(compose(["run.name=first", *FEW]), run / "config.yaml")
    with pytest.raises(ConfigError, match=f"has no model/.*name one of its checkpoints: .*checkpoint={path}, "):
        resolved(f"checkpoint={run}")
    rows = [{"step": step, "validation/accuracy": accuracy} for step, accuracy in enumerate((0.9, 0.1, 0.3, 0.2))]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = resolved(f"checkpoint={path}")
    assert (config.model.path, config.model.chat, config.origin) == (str(path), "text", str(run))
    assert origin_of(config).chosen == (
        "step 2 of the run, named on the command line; the step of its best validation accuracy"
    )
    assert origin_of(resolved(f"checkpoint={folder}/step_000003")).chosen.endswith("named on the command line")
    moved = shutil.copytree(path, tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="give origin=RUN"):
        resolved(f"checkpoint={moved}")
    assert resolved(f"checkpoint={moved}", f"origin={run}").model.chat == "text"


def test_a_checkpoint_that_is_not_whole_is_refused(run):
    checkpoint = run / "checkpoints" / "step_000002"
    checkpoint.mkdir(parents=True)
    with pytest.raises(ConfigError, match="half written"):
        resolved(f"checkpoint={checkpoint}")
    with pytest.raises(ConfigError, match="it has none that is complete"):
        resolved(f"checkpoint={run}")


def test_a_folder_that_was_exported_by_hand_needs_its_origin(run):
    exported = model(run.parent.parent / "exported")
    config = resolved(f"checkpoint={exported}", f"origin={run}")
    assert (config.model.path, config.model.chat, config.origin) == (str(exported), "text", str(run))
    assert origin_of(config).chosen.startswith("not known")


def test_a_name_of_the_hub_and_a_folder_have_no_origin(tmp_path):
    config = resolved("checkpoint=Qwen/Qwen2.5-7B", "model.chat=template")
    assert (config.model.path, config.model.chat, config.origin) == ("Qwen/Qwen2.5-7B", "template", None)
    assert resolved(f"checkpoint={model(tmp_path / 'm')}").origin is None
    assert resolved("model=smollm2_135m").model.kind == "smollm2"


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        ([], "checkpoint is not set"),
        (["model=tiny"], "give checkpoint=runs/NAME"),
        (["checkpoint=runs/nothing"], "no such folder"),
        (["checkpoint=/"], "neither a run directory, nor"),
        (["checkpoint=a/b", "model.path=c/d"], "they say the same"),
        (["checkpoint=a/b", "origin=/"], "no run directory"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(overrides, complaint):
    with pytest.raises(ConfigError, match=complaint):
        resolved(*overrides)


def test_rows_that_trained_or_chose_the_checkpoint_are_no_test(run):
    origin = Origin(run, compose(FEW), "")
    rows = {role: load_rows(origin.config.data, role, check_answer, run)[0] for role in ("train", "validation", "test")}
    strange = Row(
        id="x/test/0", source="x", messages=({"role": "user", "content": "Who?"},), answer="1", verifier="math"
    )
    told = standings(origin, {**rows, "mixed": rows["test"] + rows["validation"][:3], "strange": [strange]})
    labels = {name: standing.label for name, standing in told.items()}
    assert labels == {
        "train": "training data",
        "validation": "selection data",
        "test": "held out",
        "mixed": "selection data",
        "strange": "held out",
    }
    assert told["mixed"].reason == f"3 of {len(rows['test']) + 3} questions chose checkpoints in first"
    assert standings(None, rows)["test"].label == "unknown"


def test_a_run_whose_data_are_gone_says_nothing_of_a_benchmark(run):
    data = ["data=file", "data.sources.file.train=gone.jsonl", "data.sources.file.validation=also_gone.jsonl"]
    told = standings(Origin(run, compose(data), ""), {"any": []})["any"]
    assert told.label == "unknown" and "gone.jsonl" in told.reason
