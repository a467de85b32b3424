import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlvr import cli
from rlvr.grade import grade, parse
from rlvr.keys import ConfigError

SHARED = Path(__file__).parents[2] / "shared" / "cases"
HANGING = (
    "9^{9^{9}}",
    "\\left(10^{10^{10}}\\right)!",
    "\\sum_{k=1}^{10^{9}} \\frac{1}{k}",
    "\\binom{10^8}{5\\cdot10^7}",
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(rows: list[Any], name: str = "rows.jsonl") -> str:
    Path(name).write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return f"file={name}"


def verdicts(name: str = "rows.verdicts.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(name).read_text().splitlines()]


def test_verdicts_summary_and_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"id": "a", "gold": "1/2", "response": "\\boxed{0.5}", "expected": "right"},
        {"gold": 5, "response": "\\boxed{6}", "expected": "wrong"},
        {"answer": "7", "response": "\\boxed{7}"},
    ]
    assert grade([write(rows), "verifier=math", "workers=1"]) == 0
    assert [(v["id"], v["score"], v["error"]) for v in verdicts()] == [("a", 1, None), (2, 0, None), (3, 1, None)]
    assert verdicts()[0]["parts"] == {"answered": 1.0, "boxes": 1.0}
    told = capsys.readouterr().out
    assert "right     2\n" in told and "wrong     1\n" in told and "unjudged  0\n" in told
    assert "2 rows say what is right, 0 disagree" in told


def test_disagreements_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"id": "fine", "gold": "1", "response": "\\boxed{1}", "expected": "right"},
        {"id": "odd", "gold": "1", "response": "I say \\boxed{1}", "expected": "wrong"},
        {"id": "bad", "gold": "proof", "response": "\\boxed{proof}", "expected": "right"},
    ]
    assert grade([write(rows), "verifier=math", "out=v.jsonl", "workers=1"]) == 1
    assert verdicts("v.jsonl")[2]["score"] is None
    told = capsys.readouterr().out
    table = told[told.index("\nid ") :].splitlines()[2:]
    assert table[0].split()[:3] == ["odd", "wrong", "1"] and table[0].endswith("I say \\boxed{1}")
    assert table[1].startswith("bad  right") and "unjudged" in table[1] and "says that there is none" in table[1]
    assert len(table) == 2
    assert "unjudged  1; gold not usable: 1" in told


def test_a_rows_own_verifier_and_options() -> None:
    rows = [
        {"gold": "5", "response": "6, then 5", "verifier": "number", "options": {"extract": "last"}},
        {"gold": "1000", "response": "#### 1001"},
        {"gold": "1000", "response": "#### 1001", "options": {"tolerance": 0}},
        {"gold": "red", "response": "red", "verifier": "exact"},
        {
            "gold": {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{"num_words": None}]},
            "response": "none",
            "verifier": "instructions",
        },
    ]
    assert grade([write(rows), "verifier=number", "options.tolerance=1e-2", "workers=1"]) == 0
    assert [v["score"] for v in verdicts()] == [1, 1, 0, 1, 1]


def test_a_composite_from_the_command_line() -> None:
    parts = ["options.parts.right.verifier=number", "options.parts.right.weight=3"]
    parts += ["options.parts.form={verifier: format, options: {tags: [think, answer]}}"]
    file = write([{"gold": "5", "response": "#### 5"}])
    assert grade([file, "verifier=composite", *parts, "workers=1"]) == 0
    assert verdicts()[0]["score"] == 0.75
    assert verdicts()[0]["parts"]["form"] == 0


def test_your_own_verifier_by_file_and_by_module() -> None:
    Path("rewards").mkdir()
    Path("rewards/__init__.py").touch()
    Path("rewards/words.py").write_text("def first(response, answer):\n    return float(response[0] == answer[0])\n")
    rows = [
        {"gold": "ab", "response": "ax", "expected": "right", "verifier": "rewards/words.py:first"},
        {"gold": "ab", "response": "ax", "expected": "right", "verifier": "rewards.words:first"},
        {"gold": "ab", "response": "bx", "expected": "wrong", "verifier": "rewards.words:first"},
    ]
    assert grade([write(rows), "workers=1"]) == 0


def test_what_could_not_be_judged_is_counted_by_cause(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text(
        "import time\n"
        "def f(response, answer):\n"
        "    if response == 'hang': time.sleep(100)\n"
        "    if response == 'raise': raise KeyError('boom')\n"
        "    return 0.5\n"
    )
    rows = [{"gold": "x", "response": response} for response in ("hang", "raise", "raise", "half")]
    assert grade([write(rows), "verifier=mine.py:f", "timeout=0.5", "workers=1"]) == 0
    assert [v["score"] for v in verdicts()] == [None, None, None, 0.5]
    told = capsys.readouterr().out
    assert "unjudged  3; KeyError: 2; timeout: 1" in told
    assert "partly    1, mean score 0.500" in told


def test_hanging_answers_cost_little() -> None:
    rows = [
        {"gold": "4", "response": f"\\boxed{{{4 + i % 2}}}", "expected": "wrong" if i % 2 else "right"}
        for i in range(60)
    ]
    rows[30:30] = [{"gold": "4", "response": f"\\boxed{{{hanging}}}", "expected": "wrong"} for hanging in HANGING]
    code = "import sys, time; from rlvr.grade import grade; t = time.monotonic(); code = grade(sys.argv[1:]); "
    code += "assert time.monotonic() - t < 10, time.monotonic() - t; assert 'torch' not in sys.modules; sys.exit(code)"
    done = subprocess.run([sys.executable, "-c", code, write(rows), "verifier=math"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [v["score"] for v in verdicts()] == [float(row["expected"] == "right") for row in rows]


@pytest.mark.skipif(not SHARED.exists(), reason="the shared cases are not here")
@pytest.mark.parametrize("name", ["math", "choice"])
def test_shared_cases(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert grade([f"file={SHARED}/{name}.jsonl", f"verifier={name}"]) == 0, capsys.readouterr().out
    assert f"{name}.verdicts.jsonl" in {path.name for path in Path().iterdir()}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "file=ROWS.jsonl is missing"),
        (["fil=rows.jsonl"], "did you mean file?"),
        (["file=rows.jsonl", "option.extract=last"], "did you mean options?"),
        (["file=rows.jsonl", "--selftset"], "did you mean --selftest?"),
        (["file=rows.jsonl", "workers=0"], "workers=0: must be"),
        (["file=rows.jsonl", "workers=1.5"], "workers=1.5: must be a whole number"),
        (["file=rows.jsonl", "timeout=soon"], "timeout=soon: must be a number"),
        (["file=rows.jsonl", "timeout=0"], "timeout=0: must be greater than 0"),
        (["file=rows.jsonl", "out="], "out= is empty"),
        (["file=rows.jsonl", "options=3"], "options=3: must be a mapping"),
        (["file=rows.jsonl", "options={a"], "neither JSON nor YAML"),
        (["file=rows.jsonl", "options.a=1", "options.a.b=1"], "options.a.b: a has been given a value"),
        (["--selftest", "out=x"], "out=... has no effect with --selftest"),
        (["--selftest", "options.extract=last"], "need a verifier"),
        (["--selftest", "verifier=mth"], "did you mean 'math'"),
        (["file=other.jsonl", "verifier=math"], "file=other.jsonl: there is no such file"),
        (["file=rows.jsonl"], "rows.jsonl, line 1: no verifier"),
        (["file=rows.jsonl", "verifier=mth"], "line 1: verifier 'mth': no such verifier; did you mean 'math'"),
        (["file=rows.jsonl", "verifier=math", "options.extrct=last"], "did you mean 'extract'"),
        (["file=rows.jsonl", "verifier=math", "out=rows.jsonl"], "would overwrite the rows"),
        (["file=rows.jsonl", "verifier=math", "out=no/v.jsonl"], "cannot be written: No such file"),
    ],
)
def test_a_wrong_command_line(
    arguments: list[str], why: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write([{"gold": "1", "response": "1"}])
    monkeypatch.setattr(sys, "argv", ["rlvr", "grade", *arguments])
    assert cli.main() == 2
    told = capsys.readouterr().err
    assert told.startswith("rlvr grade: ") and why in told
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("{", "line 2: no JSON"),
        ("\udcff".encode(errors="surrogateescape").decode("latin-1"), "line 2: no JSON"),
        ("[1]", "line 2: a row is a JSON object, not list"),
        ({"response": "1"}, 'line 2: the row has no "gold"'),
        ({"gold": "1"}, 'line 2: "response" is missing'),
        ({"gold": "1", "response": 1}, 'line 2: "response" is int, not text'),
        ({"gold": "1", "response": "1", "expected": "yes"}, "line 2: \"expected\" is 'yes'"),
        ({"gold": "1", "response": "1", "options": [1]}, 'line 2: "options" is list'),
        ({"gold": "1", "response": "1", "options": {"mode": 1}}, "line 2: verifier 'math' has no option 'mode'"),
        ({"gold": "1", "response": "1", "verifier": "maths"}, "did you mean 'math'"),
    ],
)
def test_a_wrong_row(row: Any, why: str) -> None:
    file = write([{"gold": "1", "response": "1"}, row])
    with pytest.raises(ConfigError) as told:
        grade([file, "verifier=math"])
    assert why in str(told.value)
    assert not Path("rows.verdicts.jsonl").exists()


def test_an_empty_file_is_refused() -> None:
    with pytest.raises(ConfigError, match="is empty"):
        grade([write([]), "verifier=math"])


def test_values_are_read_as_typed() -> None:
    typed = ["options.a=1e-3", "options.b=[x, y]", "options.c.d=true", "options.e=last", "options.f=2020-01-01"]
    options = parse(["file=x", *typed]).options
    assert options == {"a": 0.001, "b": ["x", "y"], "c": {"d": True}, "e": "last", "f": "2020-01-01"}


def test_a_verifier_that_fails_its_self_check(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text(
        "from rlvr.verifiers.exact import Exact\n"
        "class Bad(Exact):\n    canaries = (('a', 'b', True), ('a', 'a', True))\n"
    )
    file = write([{"gold": "a", "response": "a"}])
    assert grade([file, "verifier=mine.py:Bad", "workers=1"]) == 1
    assert "self-check" in capsys.readouterr().err
    assert grade(["--selftest", "verifier=mine.py:Bad", "workers=1"]) == 1


def test_selftest(capsys: pytest.CaptureFixture[str]) -> None:
    assert grade(["--selftest", "verifier=number", "options.extract=hash", "workers=1"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[1].split()[0] == "number" and told[1].split()[3] == "0"
    Path("mine.py").write_text(
        "from rlvr.verifiers.exact import Exact\n"
        "class Kind(Exact):\n    def grade(self, span, how, answer): return answer in span\n"
    )
    assert grade(["--selftest", "verifier=mine.py:Kind", "workers=1"]) == 1
    assert "cheat 'right or another' must score 0, got 1.0" in capsys.readouterr().err


def test_help_names_the_verifiers(capsys: pytest.CaptureFixture[str]) -> None:
    assert grade(["--help"]) == 0
    assert "choice, " in capsys.readouterr().out
