"""Rows from a data set of the Hugging Face Hub."""

import importlib
from pathlib import Path
from types import ModuleType

from rlvr.data.rows import Raw, rows_asked
from rlvr.data.table import Part, check_table_options, needed, raws
from rlvr.keys import ConfigError
from rlvr.records import Role
from rlvr.schema.data import SourceConfig


def read(source: SourceConfig, name: str, role: Role, base: Path) -> list[Raw]:
    """Rows of the split that `role` names, such as train[7000:].

    Raises:
        ConfigError: if the data set cannot be reached, or on a wrong split, column or slice.
    """
    check_table_options(source, name)
    if source.path is None:
        raise ConfigError(f"data.sources.{name}.path is null; kind=hub needs the name of a data set")
    where = f"data.sources.{name}.{role}"
    part = Part.of(rows_asked(source, role) or "", where)
    try:
        table = _package(name).load_dataset(source.path, source.subset, split=part.name)
    except OSError as error:  # ConnectionError when offline, FileNotFoundError for an unknown data set
        raise ConfigError(
            f"data.sources.{name}.path={source.path}: not in the local cache and not reachable on the Hub ({error}). "
            f'Fetch it once where there is a network: python -c "import datasets; datasets.load_dataset('
            f"'{source.path}', {source.subset!r})\", or use data=arithmetic, data=gym or data=file"
        ) from error
    except ValueError as error:  # unknown split or configuration; the library lists those there are
        raise ConfigError(f"{where}={part.name} (path={source.path}, subset={source.subset}): {error}") from error
    if columns := needed(source, table.column_names):
        table = table.select_columns(columns)
    batches = table.with_format("arrow").iter(batch_size=1000)
    return raws((record for batch in batches for record in batch.to_pylist()), part, source, where)


def _package(name: str) -> ModuleType:
    try:
        return importlib.import_module("datasets")
    except ModuleNotFoundError as error:
        raise ConfigError(f"data.sources.{name}.kind=hub needs the package datasets: pip install datasets") from error
