"""The right answer of a row, as a verifier wants it."""

import math
from decimal import Decimal
from typing import Any

EXTRACTION = ("answer_after", "answer_boxed")  # options of sources whose answer stands at the end of a solution


def gold(answer: Any, options: dict[str, Any]) -> Any:
    """Bring an answer column into shape: texts stripped, numbers as texts, lists and mappings untouched.

    Args:
        answer: the column's value; None if it is missing.
        options: of the source; `answer_after` takes what follows the last such mark (gsm8k: "####"),
            `answer_boxed: true` the content of the last complete box (MATH).

    Raises:
        ValueError: saying why there is no usable gold.
    """
    if answer is None:
        raise ValueError("no gold (missing or null)")
    if isinstance(answer, list | dict):
        return answer
    if isinstance(answer, bool) or not isinstance(answer, str | int | float | Decimal):
        raise ValueError(f"gold {answer!r} is a {type(answer).__name__}; a text, number, list or mapping is needed")
    if isinstance(answer, float | Decimal) and not math.isfinite(answer):
        raise ValueError(f"gold {answer!r} is not a finite number")
    text = _extracted(str(answer), options).strip()
    if not text:
        raise ValueError("the gold is empty")
    return text


def _extracted(text: str, options: dict[str, Any]) -> str:
    mark = options.get("answer_after")
    if mark is not None:
        if mark not in text:
            raise ValueError(f"no {mark!r} in the answer column (options.answer_after)")
        return text.rsplit(mark, 1)[1]
    return last_box(text) if options.get("answer_boxed") else text


def last_box(text: str) -> str:
    r"""The content of the last complete \boxed{...} or \fbox{...}; raises ValueError if there is none."""
    starts = [text.rfind(command) + len(command) for command in ("\\boxed{", "\\fbox{") if command in text]
    if not starts:
        raise ValueError(r"no \boxed{...} in the answer column (options.answer_boxed)")
    start, depth = max(starts), 1
    for end in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0) if text[end - 1] != "\\" else 0
        if depth == 0:
            return text[start:end]
    raise ValueError(r"the last \boxed{...} of the answer column is not closed (options.answer_boxed)")
