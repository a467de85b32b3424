"""A training checkpoint as a model folder: its policy is exported once, and kept under what it holds."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from pathlib import Path

from rlvr.evaluation.store import PIECE, cache_root
from rlvr.keys import ConfigError
from rlvr.trainer.sealed import MANIFEST, incomplete, parts_of

NOT_NEEDED = ("optimizer", "critic", "reference")  # parts of a checkpoint that a policy does without
NEEDED = (("policy", "weights"), "model")  # the weights, and the folder with configuration and tokenizer


def is_checkpoint(folder: Path) -> bool:
    """Whether a folder is a training checkpoint, complete or not; a Hugging Face model is none."""
    return (folder / MANIFEST).is_file() or (folder / "progress.json").is_file()


def check(folder: Path) -> None:
    """Raises ConfigError if the policy of a checkpoint is not all there."""
    if reason := incomplete(folder, NOT_NEEDED):
        raise ConfigError(f"checkpoint={folder}: {reason}")


def identity(folder: Path) -> str:
    """A hash of the policy of a complete checkpoint and of the dtype that its run computed in; the same wherever the
    folder lies, and whatever the optimizer holds."""
    files = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
    told = hashlib.sha256(_dtype(folder).encode())
    for name in sorted(name for name in files if parts_of(name) == NEEDED[0] or name.split("/")[0] == NEEDED[1]):
        told.update(name.encode() + b"\0")
        with (folder / name).open("rb") as file:
            while piece := file.read(PIECE):
                told.update(piece)
    return told.hexdigest()[:32]


def exported_folder(name: str) -> Path:
    """Where the model of a checkpoint of this identity is kept; it may be removed at any time."""
    return cache_root() / "exported" / name


def exported(checkpoint: Path, name: str) -> Path:
    """The checkpoint's policy as a Hugging Face folder, written if it is not there; another process may do the same.

    Args:
        name: the checkpoint's `identity`.

    Raises:
        ConfigError: if its weights are missing or damaged.
    """
    import torch

    from rlvr.engine.export import export_checkpoint

    folder = exported_folder(name)
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = folder.with_name(f".{name}.{secrets.token_hex(4)}")
        export_checkpoint(checkpoint, work, getattr(torch, _dtype(checkpoint)))
        try:
            os.rename(work, folder)
        except OSError:  # another process was first: a folder that is not empty is never replaced
            shutil.rmtree(work)
            if not folder.is_dir():
                raise
    return folder


def _dtype(checkpoint: Path) -> str:
    from rlvr.trainer.checkpoint import Checkpoints

    return Checkpoints.dtype_of(checkpoint)
