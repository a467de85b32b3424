"""The laboratory's page: rows of arms that were not run again stay, where they are still comparable."""

import importlib
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent.parent / "scripts"
HEAD = ["| arm | start | best | last | training | test | minus | sequences | time |", "| --- |"]
ORDER = ["plain", "gate", "clip"]


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("laboratory").joined


def row(arm: str, test: str, seconds: str) -> str:
    return f"| `{arm}` | 0.1 | 0.4 | 0.3 | 0.9 | {test} | 0.0 | 10 | {seconds} |"


def table(*rows: str) -> str:
    return "\n".join([*HEAD, *rows])


def test_rows_stand_in_the_order_of_the_arms(joined):
    old = table(row("plain", "0.3", "9 s"), row("clip", "0.2", "8 s"), row("gone", "0.2", "8 s"))
    new = table(row("plain", "0.3", "5 s"), row("gate", "0.5", "4 s"))
    assert joined(old + "\n", new, ORDER) == table(
        row("plain", "0.3", "5 s"), row("gate", "0.5", "4 s"), row("clip", "0.2", "8 s")
    )
    assert joined("", new, ORDER) == new


@pytest.mark.parametrize("new", [table(row("plain", "0.4", "9 s")), table(row("gate", "0.5", "4 s"))])
def test_rows_that_were_compared_with_another_first_arm_do_not_stay(joined, new):
    old = table(row("plain", "0.3", "9 s"), row("clip", "0.2", "8 s"))
    with pytest.raises(SystemExit, match="plain had other results when .*clip"):
        joined(old, new, ORDER)
    whole = table(row("plain", "0.4", "9 s"), row("clip", "0.2", "8 s"))
    assert joined(old, whole, ORDER) == whole
