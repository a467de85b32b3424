"""The shipped samples: gradable, apart, and right."""

import contextlib
import io
import json
import sys
from pathlib import Path

import pytest
import yaml

from rlvr.data import files
from rlvr.data.sources import load_rows
from rlvr.schema.data import SourceConfig
from rlvr.verifiers import build
from rlvr.verifiers.choice import letter_shares
from rlvr.verifiers.code_answer import Printed, read, same_value
from tests.data.helpers import data

CONFIG = yaml.safe_load((Path(__file__).parents[2] / "conf" / "data" / "five_domains.yaml").read_text())
WRITTEN = ("math", "code", "stem", "instructions")
SOLUTIONS = [
    "print(sum(map(int, input().split())))",
    "print(input()[::-1])",
    "import math\nprint(math.factorial(int(input())))",
    "print(max(map(int, input().split())))",
    "def is_palindrome(s): return s.lower() == s.lower()[::-1]",
    "def count_vowels(s): return sum(c in 'aeiou' for c in s.lower())",
    "print(*sorted(input() for _ in range(int(input()))), sep='\\n')",
    "def fib(n):\n    a, b = 0, 1\n    for _ in range(n): a, b = b, a + b\n    return a",
    "n = int(input())\nprint('prime' if all(n % d for d in range(2, n)) else 'composite')",
    "def unique(items): return list(dict.fromkeys(items))",
    "print(len(set(input().split())))",
    "def digit_sum(n): return sum(map(int, str(n)))",
    "print(f'{int(input()) * 9 / 5 + 32:.1f}')",
    "def flatten(rows): return [x for row in rows for x in row]",
    "import math\ngcd = math.gcd",
    "print('yes' if sorted(input()) == sorted(input()) else 'no')",
    "def caesar(t, k): return ''.join(chr((ord(c) - 97 + k) % 26 + 97) if c.islower() else c for c in t)",
    "print(*range(2, int(input()) + 1, 2))",
]
FOLLOWING = {  # one response that does what each instruction row asks for
    0: "rain " * 30, 1: "A bicycle has two wheels.", 2: "The sea is deep and blue.", 3: "winter is a cold season.",
    4: "GOOD MORNING TO YOU.", 5: "* rest\n* joy\n* facts", 6: "A flower grows in the shade.", 7: "Soup with bread.",
    8: "<<The Fox>>\nIt ran.", 9: "Keep the room dark. Good night.", 10: '{"name": "Tom", "age": 3}',
    11: '"Blue light is scattered most."', 12: "Dear friend, come soon.\n\nP.S. Bring bread.",
    13: "Dear [name], come on [date] to [place].", 14: "It is night. The moon is up. The night is long. We sleep.",
    15: "A city of stone by a river.", 16: "My answer is yes.", 17: "Trains are fast.\n***\nTrains are loud.",
}  # fmt: skip


def rows(name):
    return [json.loads(line) for line in (Path(files.__file__).parent / "samples" / f"{name}.jsonl").open()]


def config(*names):
    given = {name: dict(CONFIG["sources"][name]) for name in names}
    for source in given.values():  # Hydra makes texts of counts
        source.update({role: str(source[role]) for role in ("train", "validation", "test")})
    return data(sources={name: SourceConfig(**source) for name, source in given.items()}, ungradable="error")


def check_answer(verifier, options, answer):
    build(verifier, options).check_answer(answer)


def test_every_row_is_gradable_and_dealt_once():
    dealt = []
    for role, count in (("train", 12), ("validation", 3), ("test", 3)):
        some, _ = load_rows(config(*WRITTEN), role, check_answer, Path("/nowhere"))
        assert [sum(row.source == name for row in some) for name in WRITTEN] == [count] * 4
        dealt += [row.id.split("/")[-1] for row in some]
    assert len(set(dealt)) == len(dealt) == 4 * 18


def test_logic_is_generated():
    pytest.importorskip("reasoning_gym")
    some, _ = load_rows(config("logic"), "train", check_answer, Path("/nowhere"))
    assert len(some) == 64


@pytest.mark.parametrize(("row", "code"), zip(rows("code"), SOLUTIONS, strict=True), ids=range(18))
def test_the_tests_of_every_program_are_passed_by_a_right_one(row, code, monkeypatch):
    suite = read(row["answer"])
    for test in suite.tests:
        scope, printed = {}, io.StringIO()
        if isinstance(test, Printed):
            monkeypatch.setattr(sys, "stdin", io.StringIO(test.stdin))
        with contextlib.redirect_stdout(printed):
            exec(code, scope)
        if isinstance(test, Printed):
            assert printed.getvalue().split() == test.stdout.split()
        else:
            assert any(same_value(scope[suite.function](*test.args), wanted, 0) for wanted in test.returns)


@pytest.mark.parametrize("place", FOLLOWING)
def test_every_instruction_can_be_followed_and_ignored(place):
    answer, judge = rows("instructions")[place]["answer"], build("instructions")
    assert judge.verify(FOLLOWING[place], answer).score == 1
    assert judge.verify("Yes, it IS, \n\nno", answer).score == (1 if place == 1 or place == 7 else 0)


def test_the_options_of_a_question_stand_in_it_and_no_letter_pays():
    some = rows("stem")
    for row in some:
        for letter, text in zip("ABCD", row["answer"]["options"], strict=True):
            assert f"\n{letter}. {text}\n" in row["question"]
    counts = letter_shares(row["answer"] for row in some).counts
    assert max(counts.values()) - min(counts.values()) <= 1
