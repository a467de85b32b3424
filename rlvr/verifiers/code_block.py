"""Which of a response's code blocks is the solution.

The last fenced block that defines the needed function; if none does, or none is needed, the longest (of equal ones the
last).  Blocks marked as another language than Python count only if there are no others.  A block that is not closed is
not finished and does not count.
"""

import re
import textwrap
from dataclasses import dataclass

_FENCE = re.compile(r"[ \t]*(?P<mark>`{3,}|~{3,})[ \t]*(?P<language>[\w+#.-]*)(?P<rest>[^`]*)")
_PYTHON = {"", "python", "python3", "py", "py3"}


@dataclass(frozen=True)
class Block:
    language: str
    text: str


def solution(text: str, function: str | None = None) -> str:
    """The block that is the solution, "" if there is none."""
    found = blocks(text)
    found = [block for block in found if block.language in _PYTHON] or found
    if function is not None:
        name = re.escape(function)
        defines = re.compile(
            rf"^[ \t]*(?:async[ \t]+)?def[ \t]+{name}[ \t]*[(\[]|^{name}[ \t]*(?::[^=\n]*)?=(?!=)", re.M
        )
        found = [block for block in found if defines.search(block.text)][-1:] or found
    return max(reversed(found), key=lambda block: len(block.text.strip()), default=Block("", "")).text


def blocks(text: str) -> list[Block]:
    """All closed fenced blocks, in order; a fence is closed by one of its kind that is at least as long."""
    found: list[Block] = []
    opening: re.Match[str] | None = None
    lines: list[str] = []
    for line in text.replace("\r\n", "\n").split("\n"):
        fence = _FENCE.fullmatch(line)
        if opening is None:
            opening, lines = fence, []
        elif (
            fence and not fence["language"] and not fence["rest"].strip() and fence["mark"].startswith(opening["mark"])
        ):
            found.append(Block(opening["language"].lower(), textwrap.dedent("\n".join(lines)) + "\n"))
            opening = None
        else:
            lines.append(line)
    return found
