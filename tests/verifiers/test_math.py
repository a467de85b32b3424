import json
import time
from pathlib import Path

import pytest

from rlvr.verifiers import build, judge

SHARED = Path(__file__).parents[2].parent / "shared" / "cases"
MATH = build("math")

RIGHT = [
    # numbers
    ("28\\%", "28.0\\%"),
    ("28\\%", "28 \\%"),
    ("28\\%", "0.28"),
    ("28\\%", "\\frac{7}{25}"),
    ("28\\%", "28"),
    ("0.28", "28\\%"),
    ("\\dfrac{9}{7}", "\\frac97"),
    ("5/4", "1 1/4"),
    ("5/4", "1\\frac{1}{4}"),
    ("-5/4", "-1\\frac14"),
    ("4", "004"),
    ("1,000", "1000"),
    ("1000", "1{,}000"),
    ("0.5", ".5"),
    ("1.5 \\times 10^3", "1500"),
    ("1024", "2^{10}"),
    ("3628800", "10!"),
    ("13", "\\text{13}"),
    ("0.\\overline{3}", "\\frac13"),
    ("101_2", "101_{2}"),
    ("200000", "\\$200,000"),
    # expressions
    ("\\frac{1}{2}", "\\text{The answer is } \\frac{1}{2}"),
    ("\\frac{1}{\\sqrt{n}}", "\\sqrt{1/n}"),
    ("2\\sqrt{3}", "\\sqrt{12}"),
    ("\\frac{1}{\\sqrt2}", "\\frac{\\sqrt{2}}{2}"),
    ("x^2-1", "(x-1)(x+1)"),
    ("\\log_2 3", "\\frac{\\ln 3}{\\ln 2}"),
    ("\\sin^2 x", "1-\\cos^2 x"),
    ("\\binom{n}{2}", "\\frac{n(n-1)}{2}"),
    ("e^{i\\pi}", "-1"),
    ("\\frac{1}{2}", "\\sin 30^\\circ"),
    ("2025\\cdot 2^{2024}", "2^{2024} \\times 2025"),
    ("\\infty", "\\infty"),
    ("2|x|", "|2x|"),
    # units
    ("2\\pi", "2\\pi \\text{ cm}"),
    ("2\\pi cm", "2\\pi"),
    ("5", "5 cm"),
    ("90", "90^{\\circ}"),
    ("42", "42 marbles"),
    # several values
    ("\\left(1,2\\right)", "(1,2)"),
    ("\\{1,2\\}", "\\{2,1\\}"),
    ("1, 2", "2, 1"),
    ("1 \\pm \\sqrt{2}", "1-\\sqrt2, 1+\\sqrt2"),
    ("x=1 \\text{ or } x=2", "1, 2"),
    ("x=1, y=2", "y=2, x=1"),
    ("(1,2,3)", "(1, 2, 3)"),
    ("\\begin{pmatrix}1\\\\2\\end{pmatrix}", "\\begin{bmatrix}\\frac22\\\\2\\end{bmatrix}"),
    # sets of reals, both ways round
    ("(0, 12.5)", "0 < x < 12.5"),
    ("0 < x < 12.5", "(0, 12.5)"),
    ("(-\\infty, 3)", "x<3"),
    ("x<3", "(-\\infty, 3)"),
    ("[3,\\infty)", "x\\ge 3"),
    ("x\\ge 3", "[3,\\infty)"),
    ("(1,3)", "3 > x > 1"),
    ("x>5", "2x>10"),
    ("(-\\infty,1)\\cup(2,\\infty)", "x>2 \\text{ or } x<1"),
    ("x \\neq 2", "(-\\infty,2)\\cup(2,\\infty)"),
    ("\\mathbb{R}\\setminus\\{2\\}", "x\\ne 2"),
    ("\\text{All real numbers}", "(-\\infty,\\infty)"),
    ("x\\in[1,2]", "1\\leq x\\leq 2"),
    ("\\{x \\mid x>2\\}", "(2,\\infty)"),
    ("\\emptyset", "\\{\\}"),
    ("\\{1,2\\}", "x \\in \\{2,1\\}"),
    # equations and labels
    ("34x+45y-20z+100=0", "-34x-45y+20z-100=0"),
    ("2x+4y-3=0", "y = -\\frac{1}{2}x + \\frac{3}{4}"),
    ("5", "x=5"),
    ("x=5", "5"),
    ("f(x)=2x", "2x"),
    ("2x", "f(x)=2x"),
    ("2.5", "\\frac{10}{4}=2.5"),
    ("y > 2x+1", "2x - y + 1 < 0"),
    # text
    ("Evelyn", "\\text{evelyn}"),
    ("\\text{(A)}", "A"),
    ("3:2", "3:2"),
    ("1, 2, \\ldots, n", "1,2,\\dots,n"),
]

WRONG = [
    ("\\frac{1}{2004!}", "\\frac{1}{2006!}"),
    ("\\frac{1}{2^{99}}", "\\frac{1}{2^{98}}"),
    ("\\frac{\\pi}{2^{99}}", "\\frac{\\pi}{2^{98}}"),
    ("0", "\\frac{\\pi}{2^{900}}"),
    ("1 - \\frac{1}{\\mathrm{e}}", "1 + \\frac{1}{\\mathrm{e}}"),
    ("4", "4\\sqrt(2)"),
    ("1, 2, \\ldots, n", "1, 3, 5, \\ldots, 2n-1"),
    ("4", "\\foo{4}"),
    ("4", "x+4"),
    ("4", "4 \\text{ not } 5"),
    ("28\\%", "2800"),
    ("28", "28\\%"),
    ("10", "10\\%"),
    ("5", "-5"),
    ("101_2", "101"),
    ("101_2", "5"),
    ("5", "101_2"),
    ("101_2", "101_3"),
    ("\\pi", "3.14"),
    ("\\frac13", "0.333"),
    ("12", "1 2"),
    ("(1,2)", "\\{1,2\\}"),
    ("\\{1,2\\}", "(1,2)"),
    ("(1,2)", "(2,1)"),
    ("(1,2)", "[1,2]"),
    ("1, 2", "2"),
    ("2", "1, 2"),
    ("1, 2", "1, 2, 3"),
    ("1, 1, 2", "1, 2, 2"),
    ("3", "3 or 5"),
    ("3", "3 \\text{ or } 5"),
    ("3", "3, 5"),
    ("3", "\\pm 3"),
    ("3", "\\{3\\}"),
    ("3", "y+x=3"),
    ("3", "n=3k"),
    ("x=5", "y=5"),
    ("x=1,y=2", "x=2,y=1"),
    ("5", "3=5"),
    ("y=2x+1", "2x+1"),
    ("3x + 4y + 14=0", "3*x-1*y+13=0"),
    ("|x|", "x"),
    ("x", "\\sqrt{x^2}"),
    ("3+2i", "3-2i"),
    ("2x", "2y"),
    ("(3,\\infty)", "x\\ge 3"),
    ("(0,1]", "0<x<1"),
    ("\\infty", "-\\infty"),
    ("y > 2x+1", "y<2x+1"),
    ("x<3", "y<3"),
    ("(-\\infty,1)\\cup(2,\\infty)", "x>2"),
    ("5 \\text{ cm}", "5 \\text{ m}"),
    ("5 \\text{ cm}", "5 \\text{ cm}^2"),
    ("\\begin{pmatrix}1\\\\2\\end{pmatrix}", "(1,2)"),
    ("\\begin{pmatrix}1&2\\end{pmatrix}", "\\begin{pmatrix}1\\\\2\\end{pmatrix}"),
    ("3:2", "2:3"),
    ("5", "five"),
    ("7", ""),
    ("A", "B"),
]


@pytest.mark.parametrize(("gold", "given"), RIGHT)
def test_same_object(gold: str, given: str) -> None:
    assert judge(MATH, f"So it is \\boxed{{{given}}}.", gold).score == 1


@pytest.mark.parametrize(("gold", "given"), WRONG)
def test_other_object(gold: str, given: str) -> None:
    assert judge(MATH, f"So it is \\boxed{{{given}}}.", gold).score == 0


@pytest.mark.parametrize("gold", sorted({gold for gold, _ in RIGHT + WRONG}))
def test_every_answer_is_right_against_itself(gold: str) -> None:
    MATH.check_answer(gold)


@pytest.mark.parametrize("form", ["\\boxed{%s}", "Answer: %s", "The answer is $%s$.", "#### %s"])
@pytest.mark.parametrize(("gold", "given", "score"), [("28\\%", "28", 1), ("28\\%", "28\\%", 1), ("28", "28\\%", 0)])
def test_percent_policy_is_the_same_in_every_form(form: str, gold: str, given: str, score: int) -> None:
    assert judge(MATH, form % given, gold).score == score


@pytest.mark.parametrize(
    ("gold", "response", "score"),
    [
        ("5", "I get \\boxed{3}. Wait, actually \\boxed{5}.", 1),
        ("3", "I get \\boxed{3}. Wait, actually \\boxed{5}.", 0),
        ("12", "\\boxed{1}\\boxed{2}", 0),
        ("840", "therefore\\boxed{840}., and\n\n**Final Answer**\n\\boxed{840}", 1),
        ("7", "<think>maybe \\boxed{7}", 0),
        ("7", "<think>\\boxed{7}</think>", 0),
        ("7", "<think>maybe \\boxed{8}</think> The answer is \\boxed{7}.", 1),
        ("7", "prefilled thought \\boxed{8}</think>\\boxed{7}", 1),
        ("42", "2+40=42\n#### 42\n" + "That is the total number. " * 40, 1),
        ("-5", "The final answer is -5.", 1),
        ("5", "The final answer is -5.", 0),
        ("200000", "So his profit is $200,000.", 1),
        ("13", "Answer: $13$", 1),
        ("73", "It is **73**.\n\n---\n\nFinal Answer: **73**", 1),
        ("4", "The answer is $4\\sqrt(2)$", 0),
        ("3", "The answer is $3$ or $5$.", 0),
        ("4", "it is x + 4", 0),
        ("5", "\\boxed{5", 0),
        ("5", "", 0),
        ("5", "<answer></answer>", 0),
    ],
)
def test_extraction(gold: str, response: str, score: int) -> None:
    assert judge(MATH, response, gold).score == score


def test_an_unclosed_prefilled_thought_does_not_pay() -> None:
    assert judge(build("math", {"prefilled": True}), "maybe \\boxed{7}", "7").score == 0


@pytest.mark.parametrize("gold", ["", "proof", "notfound", None, True, ["1"], {"a": 1}])
def test_ungradable_answers_are_named_at_load(gold: object) -> None:
    with pytest.raises(ValueError, match="answer"):
        MATH.check_answer(gold)


@pytest.mark.parametrize("gold", [7, 2.5, "\\boxed{5}", "$x^2$", "We add: 2+3 = 5\n#### 5"])
def test_usable_answers_in_other_clothes(gold: object) -> None:
    MATH.check_answer(gold)


@pytest.mark.parametrize(
    "bomb",
    [
        "9^{9^{9}}",
        "\\left(10^{10^{10}}\\right)!",
        "\\sum_{k=1}^{10^{9}} \\frac{1}{k}",
        "\\binom{10^8}{5\\cdot10^7}",
        "\\sin(2^{10^{10}})",
        "2^{\\pi^{10^{10}}}",
        "(" * 400 + "1" + ")" * 400,
        "9" * 5000,
        "10^{-10^{10}}",
        "((10!)!)!",
        "\\lfloor \\pi^{10^{10}} \\rfloor",
        "e^{e^{e^{e^{e}}}}",
        "1.5e999999999",
        "{" * 900,
        "1" + "+1" * 450,
    ],
)
def test_bombs_are_refused_before_they_are_computed(bomb: str) -> None:
    start = time.perf_counter()
    assert judge(MATH, f"\\boxed{{{bomb}}}", "4").score in (0, None)
    assert time.perf_counter() - start < 1


def test_model_text_is_never_run_as_python(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    for poison in (
        f"[__import__('pathlib').Path('{canary}').touch()]\\pi",
        f"__import__('pathlib').Path('{canary}').touch()",
        f"\\text{{open('{canary}','w')}}",
    ):
        assert judge(MATH, f"\\boxed{{{poison}}}", "4").score == 0
    assert not canary.exists()
    assert judge(MATH, "\\boxed{5}", "4").score == 0


@pytest.mark.skipif(not SHARED.exists(), reason="the shared cases are not here")
def test_shared_cases() -> None:
    for line in (SHARED / "math.jsonl").read_text().splitlines():
        case = json.loads(line)
        assert judge(MATH, case["response"], case["gold"]).score == float(case["expected"] == "right"), case
