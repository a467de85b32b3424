"""Read an offline W&B file: LevelDB's log format (32 KiB blocks of checksummed fragments) around protobuf records."""

import json
import struct
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wandb.proto import wandb_internal_pb2 as pb

BLOCK = 32 * 1024
PATIENCE = 20.0  # seconds
FILE_HEADER, FRAGMENT_HEADER = struct.Struct("<4sHB"), struct.Struct("<IHB")
PADDING, WHOLE, FIRST, MIDDLE, LAST = range(5)


@dataclass
class WandbFile:
    """What one offline run says: its rows in the order they were logged, its config and its summary."""

    run_id: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    ended: bool = False


def read_wandb(directory: Path) -> WandbFile:
    """Read the one .wandb file of an offline run directory whose run was finished.

    W&B's own process writes it, and the end of it a moment after `finish` has returned.
    """
    (path,) = directory.glob("*.wandb")
    deadline = time.monotonic() + PATIENCE
    while not (told := _read(path)).ended:
        assert time.monotonic() < deadline, f"{path}: the run has no end"
        time.sleep(0.05)
    return told


def _read(path: Path) -> WandbFile:
    told = WandbFile()
    for payload in _payloads(path.read_bytes()):
        record = pb.Record.FromString(payload)
        match record.WhichOneof("record_type"):
            case "run":
                told.run_id = record.run.run_id
                told.config |= _items(record.run.config.update)
            case "config":
                told.config |= _items(record.config.update)
            case "history":
                told.history.append(_items(record.history.item))
            case "summary":
                told.summary |= _items(record.summary.update)
            case "exit":
                told.ended = True
    return told


def _items(items: Any) -> dict[str, Any]:
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}


def _payloads(data: bytes) -> Iterator[bytes]:
    """Join fragments into records; the file of a killed process may end in the middle of one."""
    name, magic, _version = FILE_HEADER.unpack_from(data)
    assert (name, magic) == (b":W&B", 0xBEE1)
    at, parts = FILE_HEADER.size, b""
    while at + FRAGMENT_HEADER.size <= len(data):
        if (room := BLOCK - at % BLOCK) < FRAGMENT_HEADER.size:
            at += room
            continue
        checksum, size, kind = FRAGMENT_HEADER.unpack_from(data, at)
        at += FRAGMENT_HEADER.size
        fragment = data[at : at + size]
        if kind == PADDING or len(fragment) < size:
            return
        assert zlib.crc32(bytes([kind]) + fragment) == checksum
        at += size
        parts = fragment if kind in (WHOLE, FIRST) else parts + fragment
        if kind in (WHOLE, LAST):
            yield parts
