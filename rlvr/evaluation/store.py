"""Samples of evaluations on disk, so that none is drawn twice.

One folder per model, benchmark and way of sampling; in it, files of JSON lines that are only ever appended to, one by
each process that has written.  A line that a killed process left half written is skipped.  How many samples a problem
gets is no part of the folder's name: asking for more of them goes on where fewer were asked for.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from rlvr.trainer.jsonl import dumps

Place = tuple[str, int]  # problem id, number of the sample
Line = dict[str, Any]
PIECE = 1 << 24  # bytes that are hashed at once
HASHED = ("*.safetensors", "*.bin", "*.json", "*.jinja", "*.model", "*.txt", "*.py")  # what a model is made of


class SampleStore:
    """The samples of one benchmark by one model: what was drawn, and what was judged."""

    def __init__(self, root: Path, settings: Mapping[str, Any], writer: str) -> None:
        """
        Args:
            root: folder of all stores.
            settings: all that decides what would be drawn and how it is judged.
            writer: name of this process.
        """
        self.settings, self.folder = settings, root / digest(settings)
        self._writer = f"{writer}-{secrets.token_hex(4)}"
        self._files: dict[str, TextIO] = {}

    def add(self, kind: str, line: Line) -> None:
        """Append a `drawn` or `judged` line with its `problem` and `sample`, and hand it to the operating system."""
        if kind not in self._files:
            self._describe()
            self._files[kind] = (self.folder / f"{kind}-{self._writer}.jsonl").open("a", encoding="utf-8")
        self._files[kind].write(dumps(line) + "\n")
        self._files[kind].flush()

    def read(self, kind: str) -> dict[Place, Line]:
        """All whole lines of a kind by their place; of several for one place, the first without an error."""
        found: dict[Place, Line] = {}
        for path in sorted(self.folder.glob(f"{kind}-*.jsonl")):
            for line in _whole_lines(path):
                place = (line["problem"], line["sample"])
                if place not in found or found[place].get("error"):
                    found[place] = line
        return found

    def close(self) -> None:
        """Close this process's files."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _describe(self) -> None:
        """Leave word for people of what the folder holds."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "settings.json"
        if not path.exists():
            work = self.folder / f".{self._writer}.tmp"
            work.write_text(json.dumps(self.settings, indent=1) + "\n", encoding="utf-8")
            os.replace(work, path)


def _whole_lines(path: Path) -> Iterator[Line]:
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)


def cache_root() -> Path:
    """What is kept between commands, in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rlvr"


def store_root() -> Path:
    """Where samples are kept between evaluations."""
    return cache_root() / "evaluations"


def digest(value: Any) -> str:
    """A short hash of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def identity_of(folder: Path) -> str:
    """A hash of the files that make a model folder what it is; the same wherever the folder lies."""
    told = hashlib.sha256()
    for path in sorted({path for pattern in HASHED for path in folder.glob(pattern)}):
        told.update(path.name.encode() + b"\0")
        with path.open("rb") as file:
            while piece := file.read(PIECE):
                told.update(piece)
    return told.hexdigest()[:32]
