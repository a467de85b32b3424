"""Folders that are whole or not there: written aside, synced, sealed with a manifest, and renamed."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlvr.keys import RunError

FORMAT = 2
MANIFEST = "complete.json"
FAILING = (  # what a disk does, as opposed to what a program does wrong
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.ENOENT,
    errno.EIO,
    errno.ESTALE,
)


def incomplete(path: Path, forgiven: Collection[str] = ()) -> str | None:
    """Why a folder is not a checkpoint that can be resumed from, or None if it is.

    Args:
        path: the folder.
        forgiven: parts that may be missing: a model such as "critic", or a kind of files such as "optimizer".
    """
    manifest = path / MANIFEST
    if not manifest.exists():
        return f"{MANIFEST} is missing: it is half written, or no checkpoint of rlvr"
    try:
        told: dict[str, Any] = json.loads(manifest.read_text(encoding="utf-8"))
        form, files = told["format"], dict(told["files"])
    except (ValueError, KeyError, TypeError) as error:
        return f"{MANIFEST} cannot be read ({type(error).__name__}: {error})"
    if form != FORMAT:
        newer = isinstance(form, int) and form > FORMAT
        return f"its format is {form}, this version reads {FORMAT}: use {'a newer' if newer else 'an older'} rlvr"
    for name, size in files.items():
        file = path / name
        if not file.exists():
            if set(parts_of(name)) & set(forgiven):
                continue
            return f"{name} is missing"
        if file.stat().st_size != size:
            return f"{name} has {file.stat().st_size} bytes instead of {size}"
    return None


def parts_of(name: str) -> tuple[str, str]:
    """The model that a file of a checkpoint belongs to, and the kind of its content: policy/optimizer-00000-..."""
    folder, _, file = name.rpartition("/")
    return folder, file.split("-")[0]


def seal(folder: Path, files: Mapping[str, int]) -> None:
    """Write the manifest, last of all.

    Args:
        folder: where all files are, synced.
        files: their names, relative to the folder, and their sizes in bytes.
    """
    manifest = folder / MANIFEST
    manifest.write_text(json.dumps({"format": FORMAT, "files": dict(files)}, indent=1), encoding="utf-8")
    sync([manifest, *(path for path in folder.rglob("*") if path.is_dir()), folder])


def put(work: Path, target: Path) -> None:
    """Rename a sealed folder, in place of one that had the name."""
    if target.exists():
        remove(target)
    work.rename(target)
    sync([target.parent])


def remove(path: Path) -> None:
    """Delete a checkpoint; one that is half deleted never has its name."""
    old = aside(path, "old")
    path.rename(old)
    shutil.rmtree(old, ignore_errors=True)


def aside(path: Path, suffix: str) -> Path:
    """The hidden neighbour under which a folder is made or deleted."""
    return path.with_name(f".{path.name}.{suffix}")


def sync(paths: Iterable[Path]) -> None:
    """Force files and folders to the disk."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def told_plainly(what: str) -> Iterator[None]:
    """Turn the failure of a disk into a message for people.

    Raises:
        RunError: naming what failed.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in FAILING:
            raise
        raise RunError(
            f"{what}: {error.strerror or error}" + (f": {error.filename}" if error.filename else "")
        ) from error
