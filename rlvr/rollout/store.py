"""Completions of the reference on disk, with their log-probs and verdicts, so that none is ever drawn twice.

One folder per reference and way of sampling; in it, files of JSON lines that are only ever appended to, one by each
process that has written.  No two processes write to one file, so nothing is locked, and a line that a killed process
left half written is never continued.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from rlvr.records import Completion, Prompt, Verdict

LINE = re.compile(rb'\{"key": "([0-9a-f]{32}/[0-9]+)", .*\}\n')


class Graded(NamedTuple):
    """A completion and what the verifier says of it."""

    completion: Completion
    verdict: Verdict


def key_of(prompt: Prompt, options: Mapping[str, Any], k: int) -> str:
    """Names the k-th completion of a prompt: another answer, verifier, option or prompt text is another name.

    Args:
        options: of the prompt's verifier; the content of files of the user's own, `file.py:name`, counts too, and of
            modules, `package.module:name`, that lie below the current directory.
        k: counted from 0.
    """
    judged_by = json.dumps([prompt.verifier, options], sort_keys=True)
    told = json.dumps([prompt.id, prompt.tokens, prompt.answer, judged_by, _own_code(judged_by)], sort_keys=True)
    return f"{hashlib.sha256(told.encode()).hexdigest()[:32]}/{k}"


@cache
def _own_code(judged_by: str) -> list[str]:
    """Hashes of the Python files that a verifier and its options name."""
    named = re.findall(r'"([^"\s]+):\w+"', judged_by)
    files = [Path(name if name.endswith(".py") else f"{name.replace('.', '/')}.py").expanduser() for name in named]
    return [hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.is_file()]


class ReferenceStore:
    """What one reference has answered under one way of sampling; a map from `key_of` to graded completions.

    Every process reads all files of the folder and writes to one of its own.  Only an index is held in memory.
    """

    def __init__(self, root: Path, settings: Mapping[str, Any], writer: str) -> None:
        """
        Args:
            root: folder of all stores.
            settings: all that decides what would be drawn; other settings are another folder, and never read here.
            writer: name of this process; its file gets a suffix that no other has.
        """
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
        self.settings, self.folder = settings, root / digest[:16]
        self._own = self.folder / f"{writer}-{secrets.token_hex(4)}.jsonl"
        self._read_up_to: dict[Path, int] = {}
        self._places: dict[str, tuple[Path, int]] = {}
        self.refresh()

    def __contains__(self, key: str) -> bool:
        return key in self._places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, key: str) -> tuple[Completion, Verdict | None]:
        """The verdict is None where it could not be given."""
        path, offset = self._places[key]
        with path.open("rb") as file:
            file.seek(offset)
            row = json.loads(file.readline())
        verdict = Verdict(**row["verdict"]) if row["verdict"] else None
        tokens, logprobs = tuple(row["tokens"]), tuple(row["logprobs"])
        completion = Completion(
            tokens=tokens, logprobs=logprobs, text=row["text"], truncated=row["truncated"], source="reference"
        )
        return completion, verdict

    def add(self, rows: Iterable[tuple[str, Graded]]) -> None:
        """Append rows, each by its key; a verdict that could not be given is left out, for it may be given next time.

        Raises:
            OSError: if the disk is full.
        """
        lines = [_line(key, graded) for key, graded in rows]
        if not lines:
            return
        self._describe()
        with self._own.open("ab") as file:
            file.writelines(lines)
        self.refresh()

    def refresh(self) -> None:
        """Take in what this and other processes have appended; a last line that is not whole waits for its rest.

        Raises:
            ValueError: naming the line that this class did not write.
        """
        for path in sorted(self.folder.glob("*.jsonl")):
            for offset, line in _lines(path, self._read_up_to.get(path, 0)):
                found = LINE.fullmatch(line)
                if not found:
                    raise ValueError(f"{path}, byte {offset}: not a row of a reference store; remove the file")
                self._places.setdefault(found[1].decode(), (path, offset))
                self._read_up_to[path] = offset + len(line)

    def _describe(self) -> None:
        """Leave word for people of what the folder holds."""
        path = self.folder / "settings.json"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            work = self._own.with_suffix(".tmp")
            work.write_text(json.dumps(self.settings, indent=1) + "\n", encoding="utf-8")
            os.replace(work, path)


def _lines(path: Path, offset: int) -> Iterator[tuple[int, bytes]]:
    """Whole lines from `offset` on, each with where it begins."""
    with path.open("rb") as file:
        file.seek(offset)
        for line in file:
            if line.endswith(b"\n"):
                yield offset, line
                offset += len(line)


def _line(key: str, graded: Graded) -> bytes:
    completion, verdict = graded
    row = {
        "key": key,
        "tokens": completion.tokens,
        "logprobs": completion.logprobs,
        "text": completion.text,
        "truncated": completion.truncated,
        "verdict": {"score": verdict.score, "parts": verdict.parts} if verdict.error is None else None,
    }
    return json.dumps(row).encode() + b"\n"
