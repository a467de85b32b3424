"""Find the final answer in a response.

One rule for all verifiers: only text after the reasoning counts, the last complete box wins, then `####`, then
"answer is"/"Answer:", then (auto and last) the last formula or number.
"""

import re
from dataclasses import dataclass
from typing import Literal

Mode = Literal["auto", "boxed", "hash", "answer", "last", "whole"]

_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_BRACE = re.compile(r"\\.|[{}]", re.S)  # backslash-escaped characters do not count
_MARK = re.compile(r"\banswer\b\s*\**\s*(?:is\s*:?|:|=)", re.I)
_FORMULA = re.compile(
    r"\$\$(?P<a>.+?)\$\$|\\\[(?P<b>.+?)\\\]|\\\((?P<c>.+?)\\\)"
    r"|(?<![\\$\w])\$(?P<d>[^\s$](?:[^$\n]*[^\s$\\])?)\$(?!\d)",
    re.S,
)
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)"
_PLAIN = rf"(?:{_DIGITS}(?:\.\d+)?|\.\d+)"
NUMBER_IN_TEXT = re.compile(
    rf"(?<![\w.\\^_{{])(?:(?<![)\]])[-+\u2212])?(?:\\?[$\u20ac\u00a3]\s?)?(?:(?<=[$\u20ac\u00a3])[-\u2212])?"
    rf"{_PLAIN}(?:[eE][-+]?\d+)?(?:\s?/\s?{_PLAIN})?(?:\s?\\?%)?(?![\w^_{{])"
)
_OPERATOR_BEFORE = re.compile(r"(?:[*/^\u00d7\u00b7]|[\w)}][ \t]*[-+\u2212])[ \t]*$")
_OPERATOR_AFTER = re.compile(r"[ \t]*(?:[+*/^\u00d7\u00b7=][ \t]*\w|-[ \t]*\d|\\)")
_END = re.compile(r"(?:[.!?](?:\s|$)|\n|\s(?:because|since|as|so|where|which)\s)")


@dataclass(frozen=True)
class Found:
    """A final answer ("" for none), the rule that found it, and how many complete boxes there were."""

    span: str
    how: Mode
    boxes: int


def after_thought(response: str, prefilled: bool = False) -> str:
    """The text after the last `</think>`; "" for a thought that was opened (or prefilled) and never closed."""
    opened, closed = response.rfind("<think>"), response.rfind("</think>")
    if opened > closed or (prefilled and closed < 0):
        return ""
    return response[closed + len("</think>") :] if closed >= 0 else response


def closing(text: str, start: int, pair: str = "{}") -> int | None:
    """Index of the bracket that closes the one at `start`, or None; backslash-escaped characters do not count."""
    depth, i = 0, start
    while i < len(text):
        if text[i] == "\\":
            i += 2
            continue
        depth += (text[i] == pair[0]) - (text[i] == pair[1])
        if depth == 0:
            return i
        i += 1
    return None


def boxes(text: str) -> list[str]:
    """Contents of all complete `\\boxed{...}`, outermost only, in order."""
    found, at, pairs = [], 0, _pairs(text) if _BOX.search(text) else {}
    while match := _BOX.search(text, at):
        end = pairs.get(match.end() - 1)
        if end is None:
            at = match.end()
        else:
            found.append(text[match.end() : end])
            at = end
    return found


def unbox(text: str) -> str:
    """A box's content where `text` is nothing but that box."""
    text = text.strip()
    if not _BOX.match(text):
        return text
    pairs, start, stop = _pairs(text), 0, len(text)
    while (match := _BOX.match(text, start)) and pairs.get(match.end() - 1) == stop - 1:
        start, stop = match.end(), stop - 1
        start += len(text[start:stop]) - len(text[start:stop].lstrip())
        stop = start + len(text[start:stop].rstrip())
    return text[start:stop]


def _pairs(text: str) -> dict[int, int]:
    """Where each brace that is closed is closed: one pass, as a model may open thousands."""
    found, opened = {}, []
    for brace in _BRACE.finditer(text):
        if brace.group() == "{":
            opened.append(brace.start())
        elif brace.group() == "}" and opened:
            found[opened.pop()] = brace.start()
    return found


def final_span(text: str, mode: Mode) -> Found:
    """The final answer of `text` by `mode`; "auto" tries boxed, hash, answer and last, in this order."""
    all_boxes = boxes(text)
    ways = {
        "boxed": lambda: unbox(all_boxes[-1]) if all_boxes else "",
        "hash": lambda: _after_hash(text),
        "answer": lambda: _after_mark(text),
        "last": lambda: _last(text),
        "whole": lambda: text,
    }
    for how in ("boxed", "hash", "answer", "last") if mode == "auto" else (mode,):
        if span := tidy(ways[how]()):
            return Found(span, how, len(all_boxes))
    return Found("", mode, len(all_boxes))


def tidy(span: str) -> str:
    """Without Markdown emphasis, code ticks, surrounding dollars and the full stop at the end."""
    span, before = span.strip(), None
    while span != before:
        before = span
        span = span.strip().rstrip(".,;:").strip().strip("*")
        for mark in ("__", "`", "$$"):
            if span.startswith(mark) and span.endswith(mark) and len(span) > 2 * len(mark):
                span = span[len(mark) : -len(mark)]
        if (match := _FORMULA.fullmatch(span)) and "$" not in match.group(match.lastgroup or 0):
            span = match.group(match.lastgroup or 0)
    return span


def _after_hash(text: str) -> str:
    return text.rpartition("####")[2].lstrip().split("\n", 1)[0] if "####" in text else ""


def _after_mark(text: str) -> str:
    """The formula that follows the last "answer is" / "Answer:", else the words up to the end of the sentence."""
    marks = list(_MARK.finditer(text))
    if not marks:
        return ""
    rest = text[marks[-1].end() :].lstrip()
    rest = rest.lstrip("*").lstrip()
    if match := _FORMULA.match(rest):
        end = _END.search(rest, match.end())
        tail = rest[match.end() : end.start() if end else len(rest)].strip(" *.,;:")
        # words behind the formula belong to the answer ("$3$ or $5$", "$5$ cm")
        return match.group(0) if not tail else f"{match.group(match.lastgroup or 0)} {tail}".replace("$", "")
    end = _END.search(rest)
    return rest[: end.start()] if end else rest


def _last(text: str) -> str:
    """The last formula or stand-alone number, whichever comes later."""
    formulas, numbers = list(_FORMULA.finditer(text)), list(NUMBER_IN_TEXT.finditer(text))
    if formulas and (not numbers or numbers[-1].end() <= formulas[-1].end()):
        return formulas[-1].group(0)
    if not numbers:
        return ""
    number = numbers[-1]
    part_of_formula = _OPERATOR_BEFORE.search(text[: number.start()]) or _OPERATOR_AFTER.match(text, number.end())
    return "" if part_of_formula else number.group(0)
