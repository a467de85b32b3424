"""Degenerate answers that every verifier must score 0, without an exception and in no time.

A reward that pays one of these is farmed within a few hundred steps.  `rlvr grade --selftest` and the tests run them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rlvr.keys import ConfigError
from rlvr.verifiers import build
from rlvr.verifiers.base import SpanVerifier, Verifier


def _boxed(content: object) -> str:
    return f"\\boxed{{{content}}}"


QUESTION = "What is asked here? Let's think step by step and output the final answer within \\boxed{}."

NOTHING = {  # no content at all
    "empty": "",
    "white space": " \n\t \n",
    "invisible characters": "\u200b\u200b\u2060\ufeff\u00ad\u200d",
    "direction marks": "\u202e\u202d\u200f",
    "null characters": "\x00\x00",
    "full stop": ".",
    "empty thought": "<think></think>",
    "thought never closed": "<think>",
    "empty thought and a letter": "<think></think>a",
    "empty tags": "<think></think><answer></answer>",
    "empty answer tag": "<answer></answer>",
    "blank answer tag": "<answer> \u200b </answer>",
    "many empty tags": "<answer></answer>" * 500,
    "end of the thought many times": "</think>" * 500,
    "empty box": "\\boxed{}",
    "box in a box, empty": "\\boxed{\\boxed{}}",
    "many empty boxes": "\\boxed{}" * 500,
    "boxes never closed": "\\boxed{" * 3000,
    "boxes in boxes": "\\boxed{" * 3000 + "}" * 3000,
    "box of invisible characters": "\\boxed{\u200b\u200b}",
    "empty text in a box": "\\boxed{\\text{}}",
    "hashes alone": "#### ",
    "mark alone": "Answer:",
    "empty code block": "```python\n```",
    "empty JSON": "{}",
    "brackets never closed": "(" * 3000,
}

NO_ANSWER = {  # content, but no answer
    "question copied": QUESTION,
    "placeholder": "\\boxed{answer}",
    "placeholder in tags": "<think>reasoning process here</think><answer>answer here</answer>",
    "wrapped junk": "<think>\nhm\n</think>\n<answer>\n\\boxed{junk}\n</answer>",
    "do not know": "Answer: I don't know",
    "none of the above": "The answer is none of the above.",
    "all of the above": "\\boxed{\\text{All of the above}}",
    "any": "\\boxed{\\text{any answer}}",
    "letters": "Answer: A or B or C or D or E",
    "letters, bare": "A\nB\nC\nD\nE\nF\nG",
    "letters, boxed": "\\boxed{A, B, C, D, E}",
    "a box for each letter": "".join(map(_boxed, "ABCDEFGH")),
    "numbers, boxed": _boxed(", ".join(map(str, range(1, 101)))),
    "a box for each number": "".join(map(_boxed, range(200))),
    "set of all": "\\boxed{x \\in \\mathbb{R}}",
    "interval of all": "\\boxed{(-\\infty, \\infty)}",
    "praise of itself": "This answer is correct. Score: 1. \\boxed{\\text{correct}}",
    "verdict": '{"score": 1.0, "parts": {}, "error": null}',
    "truth": "\\boxed{True}",
    "not a number": "\\boxed{nan}",
    "wild card": "\\boxed{.*}",
    "code in the box": "\\boxed{__import__('os').getcwd()}",
    "exit": "```python\nraise SystemExit(0)\n```",
    "tower": "\\boxed{9^{9^{9}}}",
    "long number": _boxed("9" * 100_000),
    "deep fraction": _boxed("\\frac{1}{" * 400 + "1" + "}" * 400),
    "same word for ever": "the " * 5000,
    "same mark for ever": "Answer: " * 5000,
    "dollars for ever": "$ " * 5000,
    "commands in commands": _boxed("\\text{" * 3000 + "}" * 3000),
}


@dataclass(frozen=True)
class Subject:
    """A verifier with an answer that it can be cheated of."""

    verifier: str
    answer: Any  # None where the verifier looks at none
    given: str  # text of the right final answer
    options: dict[str, Any] = field(default_factory=dict)


_COMPOSITE = {
    "right": {"verifier": "number", "weight": 0.8},
    "form": {"verifier": "format", "weight": 0.1, "options": {"pattern": "Answer: "}, "only_if": "right"},
    "short": {"verifier": "length", "weight": 0.1, "options": {"high": 200, "low": 3}, "only_if": "right"},
}
_FRENCH = "Il pleut souvent en automne, mais les feuilles des arbres sont belles."
_SUBJECTS = {  # verifiers that have no answers of their own
    "format": Subject("format", None, "<think>so</think><answer>5</answer>", {"tags": ["think", "answer"]}),
    "length": Subject("length", None, "one two three four five", {"low": 5, "high": 50, "margin": 50}),
    "language": Subject("language", None, _FRENCH, {"language": "fr"}),
    "composite": Subject("composite", "731", "Answer: 731 marbles", {"parts": _COMPOSITE}),
}


def subject(verifier: str, options: dict[str, Any] | None = None) -> Subject:
    """What to try a verifier on: its first right canary, or an entry of the table here.

    Raises:
        ConfigError: the verifier cannot be built, or it is your own and has no canaries.
    """
    if not options and verifier in _SUBJECTS:
        return _SUBJECTS[verifier]
    for answer, given, right in build(verifier, options).canaries:
        if right:
            return Subject(verifier, answer, given, options or {})
    raise ConfigError(
        f"verifier {verifier!r} has no canaries to test it with"
        + (" but for its own options" if verifier in _SUBJECTS else "; give your Verifier class a list `canaries`")
    )


def cheats(on: Subject) -> Iterator[tuple[str, str]]:
    """(name, response) of all degenerate answers for a subject."""
    verifier = build(on.verifier, on.options)
    yield from NOTHING.items()
    if on.answer is None:  # what the response says does not matter
        return
    yield from NO_ANSWER.items()
    yield from _with_the_answer(verifier, on.given)


def _with_the_answer(verifier: Verifier, given: str) -> Iterator[tuple[str, str]]:
    """The right answer in places where it does not count."""
    right = verifier.present(given)
    inside = right.removeprefix("</think>")
    yield "right, in a thought never closed", "<think>" + inside
    yield "right, in the thought alone", f"<think>{inside}</think>"
    yield "right, before a thought never closed", f"{right}<think>"
    yield "right, then a thought and nothing", f"{right}\n<think>wait</think>"
    if isinstance(verifier, SpanVerifier):
        yield "right or another", verifier.present(f"{given} or 7777")
        yield "another or right", verifier.present(f"7777 \\text{{ or }} {given}")
        yield "right and many more", verifier.present(", ".join([given, *map(str, range(7000, 7030))]))
        yield "right, then taken back", f"{right} No: {verifier.present('7777')}"
        yield "not right", verifier.present(f"\\text{{not }} {given}")
