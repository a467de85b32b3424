"""The test role decides nothing: no code can hand it to what decides, and a poisoned one changes nothing."""

import ast
import math
from pathlib import Path

import pytest

from rlvr.schema.triggers import TriggerConfig
from rlvr.trainer.triggers import KINDS
from tests.trainer.scripted import Script, hurry, play, small, told

HOUSE = Path(__file__).parents[2] / "rlvr"
STEPS = 12
TOUCH = {  # the only files that name the test role, and why
    "records.py": "its type",
    "data/rows.py": "reads and deals rows",
    "data/sources.py": "names roles",
    "data/apart.py": "keeps roles apart",
    "schema/eval.py": "says which role a benchmark's problems are of",
    "trainer/setup.py": "renders the prompts of all roles",
    "trainer/run.py": "asks it once, at the end",
    "trainer/record.py": "writes what came of it",
    "trainer/display.py": "shows what came of it",
}
AFTERWARDS = ("report/", "grade.py", "data_cli.py", "rerun.py", "eval", "farewell.py")  # read runs that are over


def names_the_test_role(path: Path) -> bool:
    """Whether a string in it is the role, one of its metrics or its file; or the prompts of any role are taken."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
            if text == "test" or text == "test.jsonl" or text.startswith("test/"):
                return True
    return False


def test_no_other_file_knows_of_the_test_role():
    found = {path.relative_to(HOUSE).as_posix() for path in HOUSE.rglob("*.py") if names_the_test_role(path)}
    assert {path for path in found if not path.startswith(AFTERWARDS)} <= set(TOUCH)


def test_it_is_asked_in_one_place_which_nothing_follows():
    """In Run.finish, which the loop calls last and which counts no step, saves no checkpoint and asks no trigger."""
    calls = []
    for path in HOUSE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                for call in ast.walk(node):
                    if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("evaluator.evaluate"):
                        calls.append((node.name, ast.unparse(call.args[0]), node))
    assert sorted((name, role) for name, role, _ in calls) == [("_validate", "'validation'"), ("finish", "'test'")]
    finish = next(node for name, _, node in calls if name == "finish")
    used = {ast.unparse(n.func) for n in ast.walk(finish) if isinstance(n, ast.Call)}
    assert not [name for name in used if any(word in name for word in ("save", "events", "trigger", "due", "restore"))]
    loop = ast.parse((HOUSE / "trainer" / "loop.py").read_text())
    train = next(node for node in loop.body if isinstance(node, ast.FunctionDef))
    last = train.body[-1]
    assert isinstance(last, ast.With) and ast.unparse(last.body[-1]) == "run.finish()"
    assert ast.unparse(train).count("finish()") == 1


def test_no_trigger_can_be_told_to_read_it():
    assert not [
        kind.metric for kind in KINDS.values() if not kind.metric.startswith(("validation/", "train/", "rollout/"))
    ]


# -- poison --------------------------------------------------------------------------------------


class Sealed(list):
    """Prompts of the test role: whoever looks at them before the last step is done breaks the run."""

    script: Script

    def _look(self):
        assert self.script.step == STEPS, f"the test role was touched at step {self.script.step}"

    def __iter__(self):
        self._look()
        return super().__iter__()

    def __getitem__(self, index):
        self._look()
        return super().__getitem__(index)

    def __len__(self):
        self._look()
        return super().__len__()


class WithTest(Script):
    """A script whose test role answers as it is told."""

    def __init__(self, accuracy):
        ups_and_downs = [0.3, 0.5, 0.6, 0.2, 0.1, 0.4, 0.6, 0.65, 0.2, 0.1, 0.3, 0.3]
        super().__init__({"validation/accuracy": dict(enumerate(ups_and_downs, 1))})
        self.accuracy, self.asked = accuracy, []

    def parts(self, config, engines):
        made = super().parts(config, engines)
        validate = made.evaluator.evaluate

        def evaluate(role, prompts):
            if role != "test":
                return validate(role, prompts)
            self.asked.append((self.step, list(prompts)))
            return {"test/accuracy": self.accuracy}, [], [{"id": "t", "source": "s", "scores": [self.accuracy]}]

        made.evaluator.evaluate = evaluate
        made.prompts["test"] = Sealed(["a test problem"])
        made.prompts["test"].script = self
        return made


def decided(folder: Path) -> dict:
    """All that a run has decided and recorded, the test role's own file aside."""
    kept = sorted(path.name for path in (folder / "checkpoints").iterdir())
    progress = [path.read_text() for path in sorted(folder.glob("checkpoints/*/progress.json"))]
    state = [path.read_text() for path in sorted(folder.glob("checkpoints/*/state.json"))]
    return {"kept": kept, "progress": progress, "state": state} | {
        name: told(folder, name) for name in ("metrics.jsonl", "events.jsonl", "samples.jsonl", "validation.jsonl")
    }


@pytest.mark.parametrize("poison", [0.0, 1.0, math.nan, math.inf])
def test_a_poisoned_test_role_changes_nothing_that_is_decided(poison, tmp_path, monkeypatch):
    """Triggers restore and reset, the best checkpoint is kept: all of it as with an ordinary test role."""
    hurry(monkeypatch)
    drop = TriggerConfig(when="validation_drop", window=2, threshold=0.1, cooldown=0, then=["restore_best"])
    flat = TriggerConfig(when="validation_plateau", window=2, threshold=0.0, cooldown=3, then=["reset_reference"])
    runs = []
    for name, accuracy in (("ordinary", 0.5), ("poisoned", poison)):
        config = small(f"steps={STEPS}", "validation.every=1", "checkpoint.every=3", "health.memory.action=off")
        config.triggers |= {"drop": drop, "flat": flat}
        script = WithTest(accuracy)
        engines = play(monkeypatch, tmp_path / name, config, script)
        runs.append((decided(tmp_path / name), engines.done, script.asked))
    ordinary, poisoned = runs
    assert ordinary == poisoned
    assert ordinary[2] == [(STEPS, ["a test problem"])]
    assert any(done.startswith("restore") for done in ordinary[1]) and "reset_reference" in ordinary[1]
    assert not [name for row in ordinary[0]["metrics.jsonl"] for name in row if "test" in name]
    assert len(told(tmp_path / "poisoned", "test.jsonl")) == 1
