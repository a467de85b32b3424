"""Generated pages are fresh; written ones name what exists, with the values it has."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlvr import manual
from rlvr.config import compose

ROOT = Path(__file__).parent.parent
PAGES = {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")))}
METHODS = ("docs/algorithms.md", "docs/armor.md", "docs/astar_po.md", "docs/laboratory.md", "docs/prorl.md")
MACROS = re.compile(
    r"\\(alpha|beta|circ|cos|delta|ell|epsilon|eta|exp|frac|gamma|ge|hat|lambda|langle|le|leftarrow|log|max|mathrm|min|ne|pi"
    r"|qquad|rangle|sum)(?![a-zA-Z])"
)


def text(page: str) -> str:
    return PAGES[page].read_text(encoding="utf-8")


def key_tables() -> Iterator[tuple[str, list[list[str]]]]:
    """Tables whose first column is `key`: an id, and their cells, the line of dashes left out."""
    for page in METHODS:
        for table in re.findall(r"^\| key \|.*\n(?:\|.*\n)+", text(page), flags=re.M):
            rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
            yield f"{page}: {rows[0][1]}", [rows[0], *rows[2:]]


@cache
def algorithm(name: str) -> Any:
    return compose([f"algorithm={name}"]).algorithm


def test_the_configuration_reference_is_fresh() -> None:
    assert text("docs/config.md") == manual.reference(), "run `make docs`"


@pytest.mark.parametrize("group", ["algorithm", "experiment"])
def test_the_pages_of_methods_have_a_command_for_every_config_and_no_other(group: str) -> None:
    commands = [command for page in METHODS for command in re.findall(r"`rlvr\s+train\s+([^`]+)`", text(page))]
    named = {word.removeprefix(f"{group}=") for c in commands for word in c.split() if word.startswith(f"{group}=")}
    assert named - {"NAME"} == set(manual.choices(group))


@pytest.mark.parametrize("rows", [pytest.param(rows, id=name) for name, rows in key_tables()])
def test_tables_of_keys_have_the_values_of_the_configs(rows: list[list[str]]) -> None:
    header, *body = rows
    configs = [(column, cell.strip("`")) for column, cell in enumerate(header) if cell.startswith("`")]
    assert configs and body
    for row in body:
        assert len(row) == len(header), row
        for column, name in configs:
            key = row[0].strip("`")
            assert getattr(algorithm(name), key) == yaml.safe_load(row[column]), f"{key} of {name}"


def test_formulas_use_nothing_that_markdown_eats_or_github_lacks() -> None:
    for page in METHODS:
        pieces = re.split(r"^\$\$$", text(page), flags=re.M)
        assert len(pieces) % 2, f"{page}: a formula is not closed"
        for formula in pieces[1::2]:
            assert not re.search(r"[\\*<>$`]", MACROS.sub("", formula)), f"{page}: {formula}"
            assert formula.count("{") == formula.count("}"), f"{page}: {formula}"


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text(page)):
        path, _, anchor = target.partition("#")
        goal = (PAGES[page].parent / path).resolve() if path else PAGES[page]
        assert goal.exists(), target
        if anchor:
            assert anchor in anchors(goal.read_text(encoding="utf-8")), target


def anchors(page: str) -> set[str]:
    """The names that GitHub gives to headings."""
    headings = re.findall(r"^#+ (.+)$", page, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
