"""A document as one self-contained HTML page, and as Markdown.  All text of runs is escaped in both."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlvr.report.document import Block, Cell, Document, Picture, Sample, Table, Text

TEMPLATE = "page.html.j2"


def html(document: Document, refresh: int = 0) -> str:
    """One page without a script and without a request; it loads itself again every `refresh` seconds, 0 for never."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("rlvr.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["table"] = lambda block: isinstance(block, Table)
    environment.tests["picture"] = lambda block: isinstance(block, Picture)
    environment.tests["sample"] = lambda block: isinstance(block, Sample)
    return environment.get_template(TEMPLATE).render(document=document, refresh=refresh, anchor=anchor)


def anchor(title: str) -> str:
    """The name of a heading in links."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


# -- Markdown ------------------------------------------------------------------------------------


def markdown(document: Document, pictures: str) -> str:
    """GitHub's Markdown; pictures are links to the PNG files in the folder `pictures` beside it."""
    parts = [f"# {_escaped(document.title)}", _escaped(document.made)]
    for section in document.sections:
        parts.append(f"## {_escaped(section.title)}")
        parts += [_block(block, pictures) for block in section.blocks]
    return "\n\n".join(parts) + "\n"


def _block(block: Block, pictures: str) -> str:
    if isinstance(block, Text):
        mark = "**Warning:** " if block.tone == "warning" else ""
        return mark + _escaped(block.text)
    if isinstance(block, Picture):
        return f"![{_escaped(block.caption)}]({pictures}/{block.name}.png)"
    if isinstance(block, Table):
        return _table(block)
    told = {"prompt": block.prompt, "response": block.response, "answer": block.answer}
    return "\n\n".join(
        [
            f"**{_escaped(block.title)}: {block.verdict}**",
            *(f"{name}:\n\n{_fenced(text)}" for name, text in told.items()),
        ]
    )


def _table(table: Table) -> str:
    lines = [_line(table.head), "|" + "---|" * len(table.head)]
    lines += [_line(row) for row in table.cells]
    return "\n".join(lines) + (f"\n\n{_escaped(table.caption)}" if table.caption else "")


def _line(cells: Sequence[str | Cell]) -> str:
    told = []
    for cell in cells:
        text = _escaped(cell.text if isinstance(cell, Cell) else cell)
        told.append(
            f"{text} (selection data)" if isinstance(cell, Cell) and cell.tone == "selection" and text else text
        )
    return "| " + " | ".join(told) + " |"


def _escaped(text: str) -> str:
    """Nothing in it is markup: neither HTML, nor emphasis, nor a link, nor a cell's end."""
    return re.sub(r"([\\`*_{}\[\]<>#|~$])", r"\\\1", text.replace("\n", " "))


def _fenced(text: str) -> str:
    """Any text as a block of code: the fence is longer than the longest one inside."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"
