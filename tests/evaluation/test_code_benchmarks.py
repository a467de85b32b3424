"""Code benchmarks in their own formats become rows that the verifier reads, and judges rightly."""

import base64
import gzip
import importlib.util
import json
import pickle
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from rlvr.verifiers.code_answer import read

SCRIPT = Path(__file__).parents[2] / "scripts" / "code_benchmarks.py"
FUNCTION = {
    "task_id": "HumanEval/0",
    "prompt": 'def double(x):\n    """Twice x."""\n',
    "entry_point": "double",
    "canonical_solution": "    print('noise')\n    return 2 * x\n",
    "base_input": [[1], [2]],
    "plus_input": [[-3]],
}
ODD = FUNCTION | {"task_id": "HumanEval/1", "canonical_solution": "    return {x}\n"}


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("code_benchmarks", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def packed(value: object) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


def test_functions_get_the_values_of_the_reference_solution(tmp_path):
    source, target = tmp_path / "in.jsonl.gz", tmp_path / "out.jsonl"
    with gzip.open(source, "wt") as file:
        file.write("".join(json.dumps(record) + "\n" for record in (FUNCTION, ODD)))
    command = [sys.executable, str(SCRIPT), "humaneval_plus", str(source), str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (row,) = map(json.loads, target.read_text().splitlines())
    assert row["id"] == "HumanEval-0" and "def double" in row["question"]
    assert [test.returns for test in read(row["answer"]).tests] == [(2,), (4,), (-6,)]
    assert "left out: HumanEval/1: TypeError" in done.stderr and "1 problems" in done.stdout


def test_hidden_tests_are_unpacked(script):
    tests = [{"input": "3\n", "output": "6\n", "testtype": "stdin"}]
    record = {
        "question_id": "abc",
        "question_content": "Double it.",
        "starter_code": "",
        "public_test_cases": json.dumps([{"input": "1\n", "output": "2\n", "testtype": "stdin"}]),
        "private_test_cases": packed(json.dumps(tests)),
        "metadata": "{}",
    }
    row = script.livecodebench(record)
    assert [test.stdout for test in read(row["answer"]).tests] == ["2\n", "6\n"]
    function = {"starter_code": "def f(x):", "metadata": json.dumps({"func_name": "f"})}
    tests = {
        name: json.dumps([{"input": "1", "output": "2", "testtype": "functional"}]) for name in ("public_test_cases",)
    }
    row = script.livecodebench(record | function | tests | {"private_test_cases": "[]"})
    assert read(row["answer"]).function == "f" and "def f(x):" in row["question"]


def test_nothing_that_is_packed_is_run(script):
    with pytest.raises(ValueError, match="they should be text"):
        script.hidden(packed(Path("x")))
