"""Rows from your own files and the shipped samples: .jsonl, .json (a list of objects) or .parquet."""

import json
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from rlvr.data.rows import Raw, rows_asked
from rlvr.data.table import OWN, Part, check_table_options, needed, raws
from rlvr.keys import ConfigError
from rlvr.records import Role
from rlvr.schema.data import SourceConfig

SHIPPED = "package:"  # before the name of a file of rlvr/data/samples/


def read(source: SourceConfig, name: str, role: Role, base: Path) -> list[Raw]:
    """Rows of the file that `role` names, such as rows.jsonl[100:200]; relative paths start at `base`.

    Where rows have the columns `id`, `source` or `verifier`, these come before what the config says.

    Raises:
        ConfigError: on a missing or unknown file, column or slice.
        ValueError: on broken content, with the file and, for JSON, the line.
    """
    check_table_options(source, name)
    where = f"data.sources.{name}.{role}"
    part = Part.of(rows_asked(source, role) or "", where)
    return raws(records(part.name, source, where, base), part, source, where, own=OWN)


def records(name: str, source: SourceConfig, where: str, base: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file as they are.

    Raises:
        ConfigError: if there is no such file, or none that can be read.
    """
    path = base / Path(name).expanduser()
    if name.startswith(SHIPPED):
        path = Path(str(files("rlvr.data"))) / "samples" / name.removeprefix(SHIPPED)
    if path.suffix not in READERS:
        raise ConfigError(f"{where}={name}: the file name must end in {', '.join(READERS)}")
    if not path.is_file():
        raise ConfigError(f"{where}={name}: there is no file {path}")
    return READERS[path.suffix](path, source)


def _jsonl(path: Path, source: SourceConfig) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield _object(_parsed(line.strip(), path, number), f"{path}, line {number}")


def _json(path: Path, source: SourceConfig) -> Iterator[dict[str, Any]]:
    records = _parsed(path.read_text(encoding="utf-8"), path, 1)
    if not isinstance(records, list):
        raise ValueError(f"{path}: must be a list of objects; for one object per line name the file .jsonl")
    for number, record in enumerate(records):
        yield _object(record, f"{path}, entry {number}")


def _parsed(text: str, path: Path, line: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{path}, line {line + error.lineno - 1}: not JSON: {error.msg} at column {error.colno}"
        ) from error


def _object(record: Any, where: str) -> dict[str, Any]:
    if not isinstance(record, dict):
        raise ValueError(f"{where}: must be an object with columns, not {type(record).__name__}")
    return record


def _parquet(path: Path, source: SourceConfig) -> Iterator[dict[str, Any]]:
    import pyarrow as pa  # costs half a second, and most runs read no Parquet
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(path)
        for batch in table.iter_batches(batch_size=1000, columns=needed(source, table.schema_arrow.names, OWN)):
            yield from batch.to_pylist()
    except pa.ArrowException as error:
        raise ValueError(f"{path}: not a readable Parquet file: {error}") from error


READERS: dict[str, Callable[[Path, SourceConfig], Iterator[dict[str, Any]]]] = {
    ".jsonl": _jsonl,
    ".json": _json,
    ".parquet": _parquet,
}
