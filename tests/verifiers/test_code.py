import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlvr.keys import ConfigError
from rlvr.records import Verdict
from rlvr.verifiers import build, code, judge
from rlvr.verifiers.code_answer import read, same_output, same_value
from rlvr.verifiers.code_block import solution
from rlvr.verifiers.pool import Job, VerifierPool
from rlvr.verifiers.sandbox import client

ECHO = {"tests": [{"stdin": "1 2\n", "stdout": "3\n"}, {"stdin": "4 5\n", "stdout": "9\n"}]}
ADD = {"function": "add", "tests": [{"args": [1, 2], "returns": 3}, {"args": [1], "kwargs": {"b": 9}, "returns": 10}]}
RIGHT = "print(sum(map(int, input().split())))"


@pytest.fixture(scope="module")
def verifier() -> Iterator[code.Code]:
    made = code.Code(seconds=2.0)
    yield made
    made.sandbox.close()


def fence(text: str, language: str = "python") -> str:
    return f"```{language}\n{text}\n```"


def grade(verifier: code.Code, text: str, answer: Any) -> Verdict:
    verdict = judge(verifier, fence(text), answer)
    assert verdict.error is None
    return verdict


@pytest.mark.parametrize(
    ("text", "score"),
    [
        (RIGHT, 1),
        ("print(3)", 0),
        (RIGHT + "\nraise SystemExit(1)", 0),
        (RIGHT + "\nraise ValueError", 0),
        ("import os, sys\n" + RIGHT + "\nsys.stdout.flush()\nos.kill(os.getpid(), 9)", 0),
        (RIGHT + "\nwhile True: pass", 0),
        (RIGHT + "\nprint('and more')", 0),
        ("print(*map(float, [sum(map(int, input().split()))]))", 0),  # an integer is expected, and 3.0 is none
        ("", 0),
    ],
)
def test_programs(verifier: code.Code, text: str, score: int) -> None:
    assert grade(verifier, text, ECHO).score == score


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("def add(a, b): return a + b", 1),
        ("class Solution:\n    def add(self, a: int, b: Optional[int]) -> int: return a + b", 1),
        ("def add(a, b): print(a + b)", 0),
        ("def add(a, b): return str(a + b)", 0),
        ("def plus(a, b): return a + b", 0),
        ("def add(a, b):\n    raise SystemExit(0)", 0),
        ("print(3)\nprint(10)", 0),
    ],
)
def test_functions(verifier: code.Code, text: str, score: int) -> None:
    assert grade(verifier, text, ADD).score == score


def test_a_crash_pays_nothing_and_an_empty_output_is_an_error_of_the_data(verifier: code.Code) -> None:
    crash = "def solve(x): raise ValueError\ntry: solve(input())\nexcept ValueError: raise SystemExit(0)"
    assert grade(verifier, crash, {"tests": [{"stdin": "1", "stdout": "1"}]}).score == 0
    for empty in ("", " \n"):
        with pytest.raises(ValueError, match="test 0 expects no output"):
            verifier.check_answer({"tests": [{"stdin": "1", "stdout": empty}]})


def test_scores_and_parts(verifier: code.Code) -> None:
    half = "a, b = map(int, input().split())\nprint(a + b if a == 4 else 1 / 0)"
    counted = {"answered": 1.0, "passed": 0.0, "crashed": 1.0, "timed_out": 0.0}
    assert grade(verifier, half, ECHO) == Verdict(score=0.0, parts=counted)  # stopped after the first test
    share = code.Code(score="fraction")
    assert grade(share, half, ECHO) == Verdict(score=0.5, parts=counted | {"passed": 0.5})
    nothing = dict.fromkeys(counted, 0.0)
    assert judge(verifier, "The answer is 3.", ECHO) == Verdict(score=0.0, parts=nothing)
    assert judge(verifier, f"<think>{fence(RIGHT)}", ECHO) == Verdict(score=0.0, parts=nothing)


def test_the_time_of_all_tests_is_limited() -> None:
    slow = code.Code(score="fraction", seconds=1.0, total_seconds=1.0)
    answer = {"tests": [{"stdin": str(i), "stdout": "x"} for i in range(10)]}
    verdict = grade(slow, "import time\ntime.sleep(0.4)\nprint('x')", answer)
    assert verdict.score == 0.3
    assert verdict.parts["timed_out"] == 1


def test_the_block_that_is_graded() -> None:
    long, short = "def f(x):\n    y = x + 1\n    return y", "print(f(3))\nprint(f(4))"
    prose = f"Here:\n{fence(long)}\nUse it so:\n{fence(short)}\n"
    assert solution(prose).strip() == long
    assert solution(prose, "f").strip() == long
    three = "\n".join(map(fence, ("def g(): pass\n" * 9, "def f(): pass", "f()\n" * 9)))
    assert solution(three, "f") == "def f(): pass\n"
    assert solution(fence("def f(): 1") + "\n" + fence("def f(): 2"), "f") == "def f(): 2\n"
    assert solution(fence("a = 1") + "\n" + fence("a = 2")) == "a = 2\n"
    assert solution(fence("class S:\n    def f(self): pass") + "\n" + fence("x = f\n" * 30), "f").startswith("class S")
    assert solution(fence("pip install numpy numpy numpy", "bash") + "\n" + fence("x = 1", "Python")) == "x = 1\n"
    assert solution("```\nx = 1\n```") == "x = 1\n"
    assert solution("1. so\n   ```py\n   if x:\n       y\n   ```") == "if x:\n    y\n"
    assert solution("````python\ns = '''\n```\n'''\n````") == "s = '''\n```\n'''\n"
    assert solution("~~~\nx\n~~~\r\n") == "x\n"
    assert solution("```python\r\nx = '\u2028'\r\n```") == "x = '\u2028'\n"
    for nothing in ("", "x = 1", "```python\nx = 1", "`x`", "```x```", "```\n```"):
        assert solution(nothing).strip() == ""


def test_a_response_of_fences_takes_no_time() -> None:
    assert solution("```python\nx\n" * 50_000, "f") == ""
    assert solution("```\n" * 50_000 + " " * 200_000 + "def", "f").strip() == ""


def test_never_from_the_thought(verifier: code.Code) -> None:
    wrong = fence("print(0)")
    assert judge(verifier, f"<think>{fence(RIGHT + '#' * 99)}</think>{wrong}", ECHO).score == 0
    assert judge(verifier, f"<think>{wrong}</think>{fence(RIGHT)}", ECHO).score == 1
    prefilled = code.Code(prefilled=True)
    assert judge(prefilled, f"{fence(RIGHT)}", ECHO).score == 0
    assert judge(prefilled, f"hm</think>{fence(RIGHT)}", ECHO).score == 1


@pytest.mark.parametrize(
    "answer",
    [
        ADD,
        json.dumps(ADD),
        {"fn_name": "add", "inputs": [[1, 2], [1, 9]], "outputs": [3, 10]},
        {"fn_name": "add", "inputs": [[1, 2], [1, 9]], "outputs": [[3], [10]]},
        {"fn_name": "add", "inputs": ["1\n2", "1\n9"], "outputs": ["3", "10"]},
        {"fn_name": "add", "tests": [{"input": "1\n9", "output": "10", "testtype": "functional"}]},
    ],
)
def test_shapes_of_function_tests(verifier: code.Code, answer: Any) -> None:
    verifier.check_answer(answer)
    assert grade(verifier, "def add(a, b): return a + b", answer).score == 1
    assert grade(verifier, "def add(a, b): return a - b", answer).score == 0


@pytest.mark.parametrize(
    "answer",
    [
        ECHO,
        {"inputs": ["1 2\n", "4 5\n"], "outputs": ["3\n", "9\n"]},
        [{"input": "1 2", "output": "3", "testtype": "stdin"}],
        {"inputs": [["1 2", ""]], "outputs": [["3"]]},
    ],
)
def test_shapes_of_program_tests(verifier: code.Code, answer: Any) -> None:
    verifier.check_answer(answer)
    assert grade(verifier, RIGHT, answer).score == 1
    assert grade(verifier, "print(9)", answer).score == 0


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (3, "is a int"),
        ("five", "not JSON"),
        ({}, 'neither "tests" nor'),
        ({"tests": []}, "no tests"),
        ({"tests": {}}, "not a list"),
        ({"tests": ["1"]}, "test 0 is a str"),
        ({"inputs": ["1"], "outputs": []}, "1 inputs and 0 outputs"),
        ({"tests": [{"stdin": "1"}]}, "no text as stdout"),
        ({"tests": [{"stdin": "\ud800", "stdout": "1"}]}, "UTF-8"),
        ({"tests": [{"args": [1], "returns": 1}]}, "does not name it"),
        ({"function": "f()", "tests": [{}]}, "not a name"),
        ({"function": "f", "tests": [{"args": [1]}]}, "does not say what the function returns"),
        ({"function": "f", "tests": [{"args": 1, "returns": 1}]}, "args must be a list"),
        ({"function": "f", "tests": [{"args": [], "returns": None}]}, "every test expects null"),
        ({"function": "f", "tests": [{"input": "x", "output": "1"}]}, "not JSON"),
        ({"tests": [{"stdin": "1", "stdout": "x" * (3 << 20)}]}, "characters"),
    ],
)
def test_answers_that_cannot_be_used(verifier: code.Code, answer: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        verifier.check_answer(answer)


def test_lists_of_one_are_read_both_ways_only_where_the_shape_is_ambiguous() -> None:
    wrapped = read({"fn_name": "f", "inputs": [[1], [2]], "outputs": [[5], [6]]}).tests
    assert [test.returns for test in wrapped] == [([5], 5), ([6], 6)]  # type: ignore[union-attr]
    lists = read({"fn_name": "f", "inputs": [[1], [2]], "outputs": [[5], [6, 7]]}).tests
    assert [test.returns for test in lists] == [([5],), ([6, 7],)]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("given", "wanted", "same"),
    [
        ("1 2\n3", "1\n2 3\n", True),
        ("YES", "yes", False),
        ("1 2", "1 2 3", False),
        ("0.3333333333", "0.33333333", True),
        ("0.3333", "0.33333333", False),
        ("2", "2.0", True),
        ("2.0", "2", False),
        ("3", "3e0", True),
        ("1000000.5", "1000000.0", True),
        ("0", "1e-9", False),
        ("1e-9", "1.0000000001e-9", True),
        ("0.0000001", "0.0", True),
        ("0.1", "0.0", False),
        ("nan", "1.0", False),
        ("1_0.0", "10.0", False),
        ("inf", "1e999", False),
        ("9" * 400, "1.5", False),
        ("007", "7", False),
    ],
)
def test_tokens(given: str, wanted: str, same: bool) -> None:
    assert same_output(given, wanted, 1e-6) is same


@pytest.mark.parametrize(
    ("given", "wanted", "same"),
    [
        (1, True, False),
        (True, 1, False),
        (True, True, True),
        (2, 2.0, True),
        (2.0, 2, True),
        (2.0000001, 2, False),
        (0.1 + 0.2, 0.3, True),
        ([1, [2.0000001]], [1, [2.0]], True),
        ([1, 2], [2, 1], False),
        ([1], [1, 2], False),
        ({"a": 1.0000001}, {"a": 1.0}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ("1", 1, False),
        (None, 0, False),
        (10**400, 1.5, False),
        (float("nan"), 1.0, False),
    ],
)
def test_values(given: Any, wanted: Any, same: bool) -> None:
    assert same_value(given, wanted, 1e-6) is same


def test_options() -> None:
    with pytest.raises(ConfigError, match="did you mean 'fraction'"):
        build("code", {"score": "fractions"})
    with pytest.raises(ConfigError, match="did you mean 'landlock'"):
        build("code", {"backend": "landlok"})
    with pytest.raises(ConfigError, match="seconds=0 must be above 0"):
        build("code", {"seconds": 0})


def test_a_sandbox_that_cannot_start_is_not_a_wrong_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client.sys, "executable", "/bin/false")
    verdict = judge(code.Code(), fence(RIGHT), ECHO)
    assert verdict.score is None
    assert verdict.error is not None
    assert verdict.error.startswith("SandboxError: no sandbox for generated code on this machine (namespaces: ")


def test_a_sandbox_without_processes_to_start_is_not_a_wrong_answer() -> None:
    script = f"""
import resource
from rlvr.verifiers import judge
from rlvr.verifiers.code import Code
code, response, answer = Code(), {fence(RIGHT)!r}, {ECHO}
soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
for limit in (soft, 1, soft):
    code.sandbox.close()
    resource.setrlimit(resource.RLIMIT_NPROC, (limit, hard))
    verdict = judge(code, response, answer)
    print(verdict.score, verdict.error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    before, without, after = done.stdout.splitlines()
    assert before == after == "1.0 None"
    assert without.startswith("None SandboxError: ")
    assert "Resource temporarily unavailable" in without


def test_the_same_verdicts_under_load_as_alone() -> None:
    """Programs that sleep or compute below their limit, on a pool whose own limit is shorter, and a busy machine."""
    programs = ["import time\ntime.sleep(0.3)\n" + RIGHT] * 4
    programs += [f"import time\nwhile time.process_time() < 0.3: pass\n{RIGHT}", "while True: pass", "print(0)"] * 2
    options = {"seconds": 0.6}
    jobs = [Job(verifier="code", options=options, response=fence(program), answer=ECHO) for program in programs]
    expected = [1.0] * 4 + [1.0, 0.0, 0.0] * 2
    hogs: list[subprocess.Popen[bytes]] = []
    with VerifierPool(workers=2, timeout=0.2) as pool:
        pool.warm("code", options)
        try:
            for load in (0, 2 * (os.cpu_count() or 1)):
                hogs += [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(load)]
                verdicts = pool.gather([pool.submit(job) for job in jobs])
                assert [verdict.score for verdict in verdicts] == expected, [v.error for v in verdicts]
        finally:
            for hog in hogs:
                hog.kill()
                hog.wait()
