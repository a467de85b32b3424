"""Find the final answer in a response.

One rule for all verifiers: only text after the reasoning counts, the last complete box wins, then `####`, then
`<answer>...</answer>`, then "answer is"/"Answer:", then (auto and last) the last formula or number.
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
    rf"(?<![\w.\\^_{{])(?<!\d:)(?:(?<![)\]])[-+\u2212])?(?:\\?[$\u20ac\u00a3]\s?)?(?:(?<=[$\u20ac\u00a3])[-\u2212])?"
    rf"{_PLAIN}(?:[eE][-+]?\d+)?(?:\s?/\s?{_PLAIN})?(?:\s?\\?%)?(?![\w^_{{]|:\d)"
)
_OPERATOR_BEFORE = re.compile(r"(?:[*/^\u00d7\u00b7]|[\w)}][ \t]*[-+\u2212])[ \t]*$")
_OPERATOR_AFTER = re.compile(r"[ \t]*(?:[+*/^\u00d7\u00b7=][ \t]*\w|-[ \t]*\d|\\)")
_EMPHASIS = re.compile(r"\*\*([^*\n]+)\*\*")
_WORD = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]{2}|[$!?](?=\s|$)")
_REMARK = re.compile(r"(?<=\S)\s+\((?!\s*(?:or|and)\b)[^()\d]*[a-z]{2}[^()\d]*\)\s*$")  # "6 (see above)"
_LONGEST = 4000  # characters of what is tidied; a longer span is no answer of any kind
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
        "answer": lambda: _marked(text),
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
    while span != before and len(span) <= _LONGEST:
        before = span
        span = span.strip().rstrip(".,;:").strip().strip("*")
        for mark in ("__", "`", "$$"):
            if span.startswith(mark) and span.endswith(mark) and len(span) > 2 * len(mark):
                span = span[len(mark) : -len(mark)]
        if (match := _FORMULA.fullmatch(span)) and "$" not in match.group(match.lastgroup or 0):
            span = match.group(match.lastgroup or 0)
    return span


def _after_hash(text: str) -> str:
    line = text.rpartition("####")[2].lstrip().split("\n", 1)[0] if "####" in text else ""
    return _after_mark(line) or line


def tagged(text: str) -> str | None:
    """What stands in the last `<answer>...</answer>`, or None where there is none."""
    closed = text.rfind("</answer>")
    opened = text.rfind("<answer>", 0, max(closed, 0))
    return None if opened < 0 else text[opened + len("<answer>") : closed].strip()


def _marked(text: str) -> str:
    """What stands in the last tags, or behind the last mark; of several lines in tags, the answer that they end in."""
    inner = tagged(text)
    if inner is None:
        return _after_mark(text)
    return _after_mark(inner) or (_last(inner) if "\n" in inner else inner)


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
    return _REMARK.sub("", rest[: end.start()] if end else rest)


def _last(text: str) -> str:
    """The last formula or stand-alone number, whichever comes later; else a last line that is all LaTeX."""
    text = _EMPHASIS.sub(r"\1", text)
    formulas, numbers = list(_FORMULA.finditer(text)), list(NUMBER_IN_TEXT.finditer(text))
    if formulas and (not numbers or numbers[-1].end() <= formulas[-1].end()):
        return formulas[-1].group(0)
    line = text.rstrip().rpartition("\n")[2].lstrip(" .=")
    if "\\" in line and "\\boxed" not in line and not _WORD.search(line):
        return line
    if not numbers:
        return ""
    number = numbers[-1]
    part_of_formula = _OPERATOR_BEFORE.search(text[: number.start()]) or _OPERATOR_AFTER.match(text, number.end())
    return "" if part_of_formula else number.group(0)
