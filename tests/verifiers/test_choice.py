from typing import Any

import pytest

from rlvr.keys import ConfigError
from rlvr.verifiers import build, judge
from rlvr.verifiers.choice import letter_shares

CHOICE = build("choice")
OPTIONS = {"A": "Vitamin A", "B": "Vitamin B and C", "C": "12 cm", "D": "None of the above"}


def row(right: str) -> dict[str, Any]:
    return {"answer": right, "options": OPTIONS}


@pytest.mark.parametrize(
    ("gold", "response", "score"),
    [
        # the letter, however it is dressed
        ("E", "So the answer is \\boxed{\\text{E}}.", 1),
        ("C", "\\boxed{\\textbf{(C) } 12}", 1),
        ("C", "\\boxed{\\mathbf{C}}", 1),
        ("C", "$\\boxed{\\text{Option C}}$", 1),
        ("C", "\\boxed{(C) Vitamins A and C}", 1),
        ("C", "**Answer: C**", 1),
        ("C", "Answer:\nC", 1),
        ("C", "Answer: [C]", 1),
        ("C", "Correct answer: (C)", 1),
        ("C", "Answer: C, because B is wrong", 1),
        ("C", "The answer is C, not B.", 1),
        ("D", "ANSWER: D. Don't know", 1),
        ("B", "The correct option is (B).", 1),
        ("B", "Option B is correct.", 1),
        ("B", "B", 1),
        ("B", "It cannot be A.\n\n**B**", 1),
        ("B", "Answer: A\nNo. Answer: B", 1),
        # no letter, or not only one
        ("D", "ANSWER: Don't know", 0),
        ("A", "ANSWER: None of the above", 0),
        ("A", "Answer: A cat", 0),
        ("A", "<think></think>a", 0),
        ("C", "The answer is not C", 0),
        ("C", "\\boxed{C \\text{ or } D}", 0),
        ("C", "\\boxed{\\text{C}, \\text{D}}", 0),
        ("C", "Answer: C) x or D) y", 0),
        ("A", "Answer: A and B", 0),
        ("A", "Answer: A/B", 0),
        ("C", "\\boxed{ABCD}", 0),
        ("D", "A\nB\nC\nD", 0),
        ("C", "\\boxed{C}\\boxed{D}", 0),
        ("C", "<think>Answer: C", 0),
    ],
)
def test_letters(gold: str, response: str, score: int) -> None:
    assert judge(CHOICE, response, gold).score == score


@pytest.mark.parametrize(
    ("right", "response", "score"),
    [
        ("C", "Answer: C", 1),
        ("C", "Answer: C) 12 cm", 1),
        ("C", "Answer: 12 cm", 1),
        ("C", "\\boxed{12.0\\,\\text{cm}}", 1),
        ("C", "\\boxed{12}", 1),
        ("C", "Answer: 12 m", 0),
        ("C", "Answer: A) 12 cm", 0),
        ("C", "Answer: C) Vitamin A", 0),
        ("C", "Answer: 13 cm", 0),
        ("B", "Answer: vitamin B and C", 1),
        ("B", "\\boxed{B) Vitamin B and C}", 1),
        ("B", "Answer: vitamin B", 0),
        ("D", "Answer: None of the above", 1),
        ("A", "Answer: None of the above", 0),
        ("Vitamin A", "\\boxed{A}", 1),
        ("(a)", "\\boxed{A}", 1),
    ],
)
def test_options(right: str, response: str, score: int) -> None:
    assert judge(CHOICE, response, row(right)).score == score


def test_the_letter_of_an_option_whose_text_is_a_letter() -> None:
    elements = {"answer": "A", "options": ["C", "N", "O"]}
    assert judge(CHOICE, "\\boxed{A}", elements).score == 1
    assert judge(CHOICE, "\\boxed{C}", elements).score == 0


def test_layouts_of_options() -> None:
    for options in (["Paris", "Rome"], {"A": "Paris", "B": "Rome"}, {"label": ["A", "B"], "text": ["Paris", "Rome"]}):
        assert judge(CHOICE, "Answer: Rome", {"answer": "B", "options": options}).score == 1
        assert judge(CHOICE, "Answer: Paris", {"answer": "B", "choices": options}).score == 0


@pytest.mark.parametrize(
    ("gold", "response", "score"),
    [
        ("9.81 m/s^2", "\\boxed{9.8 \\text{ m/s}^2}", 1),
        ("9.81 m/s^2", "Answer: 9.81", 1),
        ("9.81 m/s^2", "\\boxed{9.5 \\text{ m/s}^2}", 0),
        ("3.0e8 m/s", "\\boxed{2.998 \\times 10^{8} \\text{ m/s}}", 1),
        ("3.0e8 m/s", "\\boxed{3.0 \\times 10^{7} \\text{ m/s}}", 0),
        ("12 cm", "The answer is 12 cm.", 1),
        ("12 cm", "The answer is 12 km.", 0),
        ("5 m", "\\boxed{5 \\text{ m}}", 1),
        ("5 m", "Answer: 5 N", 0),
        ("5 m^2", "Answer: 5 m", 0),
        ("1000", "\\boxed{1001}", 0),
        ("1000", "\\boxed{1{,}000}", 1),
        ("mitochondria", "Answer: Mitochondria", 1),
        ("mitochondria", "Answer: the nucleus or mitochondria", 0),
    ],
)
def test_values(gold: str, response: str, score: int) -> None:
    assert judge(CHOICE, response, gold).score == score


def test_tolerance() -> None:
    exact = build("choice", {"tolerance": 0.0})
    assert judge(exact, "\\boxed{9.8}", "9.81 m").score == 0
    assert judge(exact, "\\boxed{9.81}", "9.81 m").score == 1
    with pytest.raises(ConfigError, match="tolerance=2 must be in"):
        build("choice", {"tolerance": 2})


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("", "empty"),
        (None, "NoneType"),
        (["A"], "list"),
        ({"answer": "E", "options": ["x", "y"]}, "'E' is not one of the options A, B"),
        ({"answer": "A", "options": ["x", "x"]}, "another option has the same text"),
        ({"answer": "A", "options": ["x"]}, "two or more"),
        ({"answer": "1", "options": {"1": "x", "2": "y"}}, "called by letters"),
    ],
)
def test_answers_that_cannot_be_graded(answer: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        CHOICE.check_answer(answer)


def test_letter_shares() -> None:
    even = letter_shares([*"ABCD"] * 25)
    assert even.counts == {"A": 25, "B": 25, "C": 25, "D": 25}
    assert even.chi_square == 0 and not even.skewed
    uneven = letter_shares([*"AAAAAAABCD"] * 10)
    assert uneven.chi_square == pytest.approx((45**2 + 3 * 15**2) / 25)
    assert uneven.skewed
    unused = letter_shares([{"answer": "A", "options": [*"wxyz"]}] * 40)
    assert unused.counts == {"A": 40, "B": 0, "C": 0, "D": 0} and unused.skewed
    assert not letter_shares(["12 cm", "A"]).skewed


def test_the_p_value_is_that_of_the_chi_square_distribution() -> None:
    shares = letter_shares("A" * 34 + "B" * 22 + "C" * 22 + "D" * 22)  # chi-square 4.32, three degrees of freedom
    assert shares.p_value == pytest.approx(0.2289, abs=0.005)
