"""What a report consists of, before it is HTML or Markdown: sections of texts, tables, pictures and samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from rlvr.ops.resample import Band

Tone = Literal["plain", "note", "selection", "warning"]  # the last two are red, and differ in words


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class Cell:
    """A cell of a table; `selection` is a number measured on data that chose something."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class Table:
    """Rows of cells under a head; the first column names the row."""

    head: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    caption: str = ""

    @property
    def cells(self) -> list[list[Cell]]:
        return [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in self.rows]


@dataclass(frozen=True)
class Picture:
    """A drawn figure."""

    name: str  # of its files
    caption: str
    svg: str


@dataclass(frozen=True)
class Sample:
    """A response of the model with its verdict: untrusted text throughout."""

    title: str
    verdict: str
    prompt: str
    response: str
    answer: str


Block = Text | Table | Picture | Sample


@dataclass
class Section:
    """A part of the report with a heading."""

    title: str
    blocks: list[Block] = field(default_factory=list)
    folded: bool = False  # long lists are folded away on the page


@dataclass
class Document:
    """A whole report."""

    title: str
    made: str
    sections: list[Section] = field(default_factory=list)


# -- numbers as text -----------------------------------------------------------------------------


def interval(band: Band, at: int = -1, signed: bool = False) -> str:
    """The mean at one point with its interval, or with the plain words that there is none."""
    sign = "+" if signed else ""
    mean = f"{band.mean_T[at]:{sign}.3f}"
    if band.low_T is None or band.high_T is None:
        return f"{mean}, no interval ({band.seeds} seed{'s' * (band.seeds != 1)})"
    if band.low_T[at] == band.high_T[at]:  # a bootstrap of equal values knows nothing of what else could have been
        return f"{mean}, no interval (the same in all seeds)"
    return f"{mean} [{band.low_T[at]:{sign}.3f}, {band.high_T[at]:{sign}.3f}]"


def count(value: float) -> str:
    return f"{value:,.0f}"


def duration(seconds: float) -> str:
    """Seconds, minutes or hours."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
