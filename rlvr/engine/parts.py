"""Tensors on disk in parts: any number of ranks writes them, any other number reads them.

A rank writes what it holds of each tensor, a contiguous part of it flattened.  The files are safetensors whose metadata
say where each part belongs; nothing is pickled, so that a file from a stranger can be wrong but cannot run code.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from rlvr.keys import ConfigError
from rlvr.world import World

PLACES = "rlvr_places"  # metadata: {name: [start, shape]} as JSON


@dataclass(frozen=True)
class Part:
    """A contiguous part of one flattened tensor."""

    name: str
    shape: tuple[int, ...]  # of the whole tensor
    start: int  # of the part in the whole, flattened
    data_n: Tensor  # (n,)

    def copied(self) -> Part:
        """The same part in memory of its own on the host."""
        return replace(self, data_n=self.data_n.detach().to("cpu", copy=True))


@dataclass(frozen=True)
class PartsFile:
    """One file that is still to be written."""

    name: str  # relative to the checkpoint
    parts: tuple[Part, ...]
    told: Mapping[str, str] = field(default_factory=dict)  # what else the metadata say

    def write(self, folder: Path) -> list[Path]:
        """Write it below `folder`; the paths of what was written.

        Raises:
            OSError: if the disk is full or gone.
        """
        path = folder / self.name
        path.parent.mkdir(parents=True, exist_ok=True)
        places = json.dumps({part.name: [part.start, part.shape] for part in self.parts})
        try:
            save_file({part.name: part.data_n for part in self.parts}, path, metadata={PLACES: places, **self.told})
        except SafetensorError as error:
            if (number := re.search(r"os error (\d+)", str(error))) is None:
                raise
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error
        return [path]


@dataclass(frozen=True)
class SmallFile:
    """One file of known content that is still to be written."""

    name: str  # relative to the checkpoint
    content: bytes

    def write(self, folder: Path) -> list[Path]:
        """Write it below `folder`; the paths of what was written.

        Raises:
            OSError: if the disk is full or gone.
        """
        path = folder / self.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.content)
        return [path]


def file_name(kind: str, world: World) -> str:
    """The file of this rank among all that hold parts of the same kind."""
    return f"{kind}-{world.rank:05d}-of-{world.size:05d}.safetensors"


def is_whole(folder: Path, kind: str) -> bool:
    """Whether the files of all ranks are there."""
    files = list(folder.glob(f"{kind}-*-of-*.safetensors"))
    return bool(files) and len(files) == int(files[0].stem.rsplit("-", 1)[1])


class PartsFolder:
    """The tensors in all files of one kind in a folder; a context manager."""

    def __init__(self, folder: Path, kind: str) -> None:
        """
        Raises:
            ConfigError: if there is no file, or one that was not written by `PartsFile`.
        """
        self.where = folder / kind
        self.told: dict[str, str] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._held: dict[str, list[tuple[int, int, Any]]] = {}  # name -> (start, stop, file)
        self._open = ExitStack()
        files = sorted(folder.glob(f"{kind}-*-of-*.safetensors"))
        if not files:
            raise ConfigError(f"{folder} has no {kind}")
        try:
            for path in files:
                self._add(path)
        except (SafetensorError, ValueError, TypeError, KeyError) as error:
            raise ConfigError(f"{path} is damaged, or no file of a checkpoint: {error}") from error

    def _add(self, path: Path) -> None:
        file = self._open.enter_context(safe_open(path, framework="pt"))
        self.told = file.metadata() or {}
        for name, (start, shape) in json.loads(self.told[PLACES]).items():
            self.shapes[name] = tuple(shape)
            (length,) = file.get_slice(name).get_shape()
            self._held.setdefault(name, []).append((start, start + length, file))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._open.close()

    def check_names(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Compare with the tensors that a model has.

        Raises:
            ConfigError: naming a tensor that only one side has, or that has another shape.
        """
        for name in sorted(self.shapes.keys() | shapes.keys()):
            there, here = self.shapes.get(name), shapes.get(name)
            if there != here:
                raise ConfigError(
                    f"{self.where}: {name} has the shape {there}, in this model {here}: they are not the same model"
                )

    def fill(self, parts: Iterable[Part]) -> None:
        """Copy into the memory of `parts` what the files hold of them.

        Raises:
            ConfigError: if they do not hold all of it.
        """
        for part in parts:
            stop, filled = part.start + len(part.data_n), 0
            for start_, stop_, file in self._held.get(part.name, []):
                first, last = max(part.start, start_), min(stop, stop_)
                if first < last:
                    source = file.get_slice(part.name)[first - start_ : last - start_]
                    part.data_n[first - part.start : last - part.start].copy_(source)
                    filled += last - first
            if filled != len(part.data_n):
                raise ConfigError(f"{self.where}: {part.name} is not whole: the file of a rank is missing")

    def whole(self, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
        """(name, whole tensor) one by one."""
        for name, shape in self.shapes.items():
            data_n = torch.empty(prod(shape), dtype=dtype)
            self.fill([Part(name, shape, 0, data_n)])
            yield name, data_n.view(shape)
