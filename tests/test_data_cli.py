import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlvr.data_cli import data, overrides
from rlvr.keys import ConfigError

CLEAN = [
    {"id": "a", "prompt": "What is 2+3?", "answer": "5", "source": "sums"},
    {"id": "b", "messages": [{"role": "user", "content": "Half of 9?"}], "answer": 4.5, "source": "sums"},
    {"id": "c", "question": "Which is red?\nA. sky\nB. blood", "answer": "B", "verifier": "choice", "source": "stem"},
]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(rows: list[dict[str, Any]], name: str = "rows.jsonl") -> str:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return name


def test_clean_rows_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert data(["check", write(CLEAN)]) == 0
    out = capsys.readouterr().out
    assert "file: 3 rows read, 3 kept, 0 ungradable" in out
    assert "letters of stem (train): B 100% of 1" in out
    assert out.endswith("nothing to mend\n")


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"id": "x", "prompt": "Prove it.", "answer": "proof"}, "file/train/x  answer 'proof' says that there is none"),
        ({"id": "x", "prompt": "No gold?"}, "file/train/x  no gold"),
        ({"id": "x", "answer": "1"}, "file/train/x  no question"),
        ({"id": "x", "prompt": "what is 2 + 3 ?", "answer": "5"}, "file/train/x = file/train/a"),
        ({"id": "x", "prompt": "what is 2 + 3 ?", "answer": "6"}, "file/train/x = file/train/a, golds 6 and 5"),
        ({"id": "c", "prompt": "Again c?", "answer": "5"}, "file/train/c  2 rows have this id"),
    ],
)
def test_what_has_to_be_mended_is_named(row: dict[str, Any], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert data(["check", write([*CLEAN, row])]) == 1
    out = capsys.readouterr().out
    assert told in out
    assert "to mend" in out


def test_roles_that_share_questions_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    write(CLEAN)
    write([{"prompt": "what  is 2+3?", "answer": "5"}], "held.jsonl")
    assert data(["check", "rows.jsonl", "data.sources.file.test=held.jsonl"]) == 1
    assert (
        "questions of test are in train, equal but for case and spacing\n  file/train/a = file/test/0"
        in capsys.readouterr().out
    )
    assert data(["check", "rows.jsonl", "data.benchmarks=[held.jsonl]"]) == 1
    assert "file/train/a = held.jsonl:0" in capsys.readouterr().out


def test_skewed_letters_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    answers = [{"answer": "C", "options": ["p", "q", "r", "s"]} if i % 9 else "A" for i in range(60)]
    rows = [{"prompt": f"Which is {i}?", "answer": answer} for i, answer in enumerate(answers)]
    assert data(["check", write(rows), "data.sources.file.verifier=choice"]) == 0
    assert "C 88%" in (out := capsys.readouterr().out)
    assert "skewed" in out


def test_show_spells_prompts_and_tokens_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert data(["show", write(CLEAN), "data.template='{question}'", "--rows", "2"]) == 0
    out = capsys.readouterr().out
    assert "=== file/train/a (train): 12 tokens; verifier math\nWhat is 2+3?\n--- answer: 5\n" in out
    assert "97:' '" in out
    assert "=== file/train/b" in out and "=== file/train/c" in out
    data(["show", "rows.jsonl"])
    assert "=== file/train/b" not in capsys.readouterr().out


def test_stats_count_lengths_against_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"prompt": "x" * size, "answer": size % 2, "source": "s"} for size in range(1, 101)]
    assert data(["stats", write(rows), "data.template='{question}'", "data.max_prompt_tokens=90"]) == 0
    out = capsys.readouterr().out
    assert "shortest 1, median 50, 90 % 90, 99 % 99, longest 100; 10 of 100 over the limit" in out
    assert out.count("  over the limit") == 1
    assert "s: 100 rows, 100.0% of train; verifiers: math 100" in out
    assert "2 different; commonest 1 (50.0%), 0 (50.0%)" in out


def test_broken_rows_and_command_lines(capsys: pytest.CaptureFixture[str]) -> None:
    Path("rows.jsonl").write_text("{oops\n")
    assert data(["check", "rows.jsonl"]) == 1
    assert "rows.jsonl, line 1: not JSON" in capsys.readouterr().err
    for arguments, message in (
        (["check", "none.jsonl"], "there is no file"),
        (["check", "a.jsonl", "b.jsonl"], "one file at a time"),
        (["check", "data=gms8k"], "did you mean data=gsm8k"),
        (["check", "data.templat=x"], "data.template"),
        (["check", "--config-dir", "nowhere"], "no such directory"),
    ):
        with pytest.raises(ConfigError, match=message):
            data(arguments)
    for wrong in (["chek"], []):
        with pytest.raises(SystemExit) as stopped:
            data(wrong)
        assert stopped.value.code == 2


def test_odd_paths_reach_hydra_whole() -> None:
    Path("a 'b'").mkdir()
    name = write(CLEAN, "a 'b'/ro,ws=1.jsonl".replace("=1", ""))
    assert data(["check", f"{name}[:2]"]) == 0


def test_yamls_of_ones_own_are_found(here: Path) -> None:
    (here / "mine" / "data").mkdir(parents=True)
    write(CLEAN)
    (here / "mine" / "data" / "own.yaml").write_text(
        "defaults: [file, _self_]\nname: own\nsources:\n  file:\n    train: rows.jsonl\n    validation: null\n"
    )
    assert data(["check", "data=own", "--config-dir", "mine"]) == 0


def test_what_the_hardware_can_hold_does_not_matter() -> None:
    assert overrides(["data=math"], None)[-1] == "data=math"
    assert data(["check", "data.max_prompt_tokens=1000000"]) == 0


def test_check_needs_no_torch() -> None:
    code = (
        "import sys; from rlvr.data_cli import data; data(['check', 'rows.jsonl']); "
        "print(*[name for name in ('torch', 'transformers', 'vllm') if name in sys.modules])"
    )
    write(CLEAN)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ""
