"""Generated pages are fresh."""

from pathlib import Path

from rlvr import manual

ROOT = Path(__file__).parent.parent


def test_the_configuration_reference_is_fresh() -> None:
    page = (ROOT / "docs" / "config.md").read_text(encoding="utf-8")
    assert page == manual.reference(), "run `make docs`"
