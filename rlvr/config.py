"""Compose, check, write and read a configuration.  Nothing else imports hydra or omegaconf.

Hydra runs once, in the process that was typed (and in every task under srun or torchrun).  The ranks it starts read the
resolved `config.yaml` of the run directory.
"""

import os
import re
import shutil
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import Field, asdict, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import hydra
import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    ConfigTypeError,
    OmegaConfBaseException,
    ValidationError,
)

from rlvr.keys import ANY, ConfigError, check, nearest, walk
from rlvr.naming import member_folder, started
from rlvr.redact import refuse_secrets
from rlvr.schema import ALGORITHM_SCHEMAS, MODEL_SCHEMAS
from rlvr.schema.data import DataConfig
from rlvr.schema.eval import EvalConfig
from rlvr.schema.hardware import HardwareConfig
from rlvr.schema.slurm import SlurmConfig
from rlvr.schema.train import TrainConfig, check_across

# sections whose class a YAML chooses
SUBCLASSED: dict[str, Mapping[str, type[Any]]] = {"algorithm": ALGORITHM_SCHEMAS, "model": MODEL_SCHEMAS}
SECTIONS = {"data": DataConfig, "hardware": HardwareConfig, "slurm": SlurmConfig}
# mappings with sections as entries, and how to make one more of these
ENTRIES = {
    "data.sources": "goes into a YAML of your own (--config-dir DIR, DIR/data/mine.yaml)",
    "eval.benchmarks": "goes into a YAML of your own (--config-dir DIR, DIR/eval/mine.yaml)",
    "triggers": "is given as a whole: '+triggers={NAME: {when: ..., ...}}', or in a YAML of your own",
    "stages": "is given as a whole: '+stages={NAME: {until: ..., ...}}', or in a YAML of your own",
}
OF_BENCHMARK = re.compile(r"eval\.benchmarks\.[^.]+\.data\.")

SWEEP_EXTRA = {  # what Hydra misses without the extra `sweep`, and what was asked for
    "hydra/launcher/submitit_local": "hydra/launcher=submitit_local",
    "hydra/launcher/submitit_slurm": "hydra/launcher=submitit_slurm",
    "hydra/sweeper/sampler/tpe": "hydra/sweeper=optuna",
}


# -- composing ---------------------------------------------------------------------------


def _chosen(group: str, otherwise: str) -> str:
    """The file chosen from a group of `conf/`, which says more than the class: controls are configs of one class."""
    return HydraConfig.get().runtime.choices.get(group, otherwise) if HydraConfig.initialized() else otherwise


def register() -> None:
    """Tell Hydra the schemas and resolvers that `conf/` refers to."""
    store = ConfigStore.instance()
    store.store(name="schema", node=TrainConfig)
    for section, schemas in SUBCLASSED.items():
        for name, schema in schemas.items():
            store.store(group=f"{section}/schema", name=name, node=schema, package=section)
    for section, schema in SECTIONS.items():
        store.store(group=f"{section}/schema", name=section, node=schema, package=section)
    OmegaConf.register_new_resolver("started", started, use_cache=True, replace=True)
    OmegaConf.register_new_resolver("chosen", _chosen, replace=True)
    OmegaConf.register_new_resolver("member_folder", member_folder, replace=True)


register()


@dataclass(frozen=True)
class Job:
    """One run as Hydra composed it, not checked yet."""

    cfg: DictConfig
    overrides: tuple[str, ...]  # of the command line
    directory: Path
    number: int | None  # in a sweep


def application(task: Callable[[Job], None], arguments: list[str], root: str = "train") -> None:
    """Run `task` as a Hydra application: once, or once per job of a sweep (-m).

    Args:
        task: called with each composed job, perhaps in other processes (hydra/launcher).
        arguments: the command line, without the program's name.
        root: the file of conf/ that is composed.

    Raises:
        ConfigError: if Hydra cannot compose what was asked for.
    """

    @hydra.main(version_base="1.3", config_path="pkg://rlvr.conf", config_name=root)
    def entry(cfg: DictConfig) -> None:
        now = HydraConfig.get()
        number = now.job.num if now.mode == RunMode.MULTIRUN else None
        if number is not None:
            cfg.run.name = f"{cfg.run.name}-{Path(now.runtime.output_dir).name}"
        task(Job(cfg, tuple(now.overrides.task), Path(now.runtime.output_dir), number))

    sys.argv[1:] = arguments
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises instead of printing and exiting
    with refusals():
        entry()


def compose(overrides: Collection[str] = ()) -> TrainConfig:
    """What `rlvr train OVERRIDES` would run, for tests and tools.

    Raises:
        ConfigError: if the command would refuse.
    """
    with refusals(), hydra.initialize_config_module("rlvr.conf", version_base="1.3"):
        cfg = hydra.compose("train", overrides=list(overrides))
    return load(cfg, given_keys(overrides))


def given_keys(overrides: Collection[str]) -> frozenset[str]:
    """The keys that a command line sets."""
    with refusals():
        parsed = OverridesParser.create().parse_overrides(list(overrides))
    return frozenset(o.key_or_group for o in parsed if not o.is_delete() and not o.key_or_group.startswith("hydra"))


def load(cfg: DictConfig, given: Collection[str] = (), world_size: int | None = None) -> TrainConfig:
    """Turn a composed config into checked dataclasses.

    Args:
        cfg: as Hydra composed it.
        given: keys that the user set; one of them without an effect is an error.
        world_size: ranks of the run; by default those of `hardware.ranks`.

    Raises:
        ConfigError: naming the key.
    """
    for name in sorted(given):
        if "." in name and find(name) is None:
            raise unknown(name)
    with refusals():
        deleted = {f.name for f in fields(TrainConfig)} - set(cfg)
        missing = sorted(OmegaConf.missing_keys(cfg) | deleted)
        if missing:
            raise ConfigError(f"{missing[0]}: no value; give {missing[0]}=... or set it in the YAML")
        config = typing.cast(TrainConfig, OmegaConf.to_object(cfg))
    for stray in sorted(vars(config).keys() - {f.name for f in fields(TrainConfig)}):
        raise unknown(stray)
    check(config, given)
    refuse_secrets(asdict(config))
    check_across(config, world_size or config.hardware.ranks)
    return config


# -- files ---------------------------------------------------------------------------------


def write(config: TrainConfig | EvalConfig, path: Path) -> None:
    """Write plain, resolved YAML, atomically; its `schema` section names the classes that `read` restores."""
    names = {}
    for section in SUBCLASSED.keys() & vars(config).keys():
        kind = type(getattr(config, section))
        names[section] = next(name for name, schema in SUBCLASSED[section].items() if kind is schema)
    text = yaml.safe_dump({"schema": names, **_escaped(asdict(config))}, sort_keys=False, allow_unicode=True, width=120)
    work = path.with_name(f".{path.name}.{os.getpid()}")
    work.write_text(text, encoding="utf-8")
    os.replace(work, path)


def discard(directory: Path) -> None:
    """Remove a run directory that holds nothing but what Hydra writes at the start."""
    if {path.name for path in directory.iterdir()} <= {".hydra", "train.log"}:
        shutil.rmtree(directory)


def read(path: Path) -> TrainConfig:
    """Read what `write` wrote, typed again.

    Raises:
        ConfigError: if the file is not a whole configuration.
    """
    plain = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(plain, dict) or "schema" not in plain:
        raise ConfigError(f"{path} is not a resolved configuration: it has no section 'schema'")
    names = plain.pop("schema")
    with refusals(f" (in {path})"):
        typed = OmegaConf.structured(TrainConfig)
        for section, schemas in SUBCLASSED.items():
            name = names.get(section)
            if name not in schemas:
                raise ConfigError(f"schema.{section}={name}: must be one of {', '.join(schemas)} (in {path})")
            typed[section] = OmegaConf.structured(schemas[name])
        config = typing.cast(TrainConfig, OmegaConf.to_object(OmegaConf.merge(typed, plain)))
    check(config)
    return config


def _escaped(value: Any) -> Any:
    """Keep OmegaConf from taking a literal ${ for an interpolation."""
    if isinstance(value, dict):
        return {k: _escaped(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_escaped(v) for v in value]
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", value) if isinstance(value, str) else value


# -- the catalogue of keys -----------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """One configuration key."""

    field: Field
    owners: tuple[str, ...]  # names of the schemas that have it; empty where there is only one


@cache
def catalogue() -> dict[str, Entry]:
    """All dotted keys, with those of every algorithm and model; a source's are under `data.sources.<name>.`.

    Those that only `rlvr eval` has are there too, but for a benchmark's data, whose keys are those of `data`; of keys
    that two commands have, the entry is that of training.
    """
    found: dict[str, Entry] = {}
    for name, f in [*walk(TrainConfig), *walk(EvalConfig)]:
        if (name.split(".")[0] not in SUBCLASSED or "." not in name) and not OF_BENCHMARK.match(name):
            found.setdefault(name, Entry(f, ()))
    for section, schemas in SUBCLASSED.items():
        for schema in schemas.values():
            for name, f in walk(schema, f"{section}."):
                owners = tuple(n for n, s in schemas.items() if f.name in {g.name for g in fields(s)})
                found.setdefault(name, Entry(f, owners))
    return found


def find(name: str) -> str | None:
    """The catalogue's name of the key that `name` sets, itself or as an entry of a mapping; None if there is none."""
    known, name = catalogue(), OF_BENCHMARK.sub("data.", name)
    mapping, entry, key = _in_entry(name)
    if key:
        name = f"{mapping}.{ANY}.{key}"
    if name in known:
        return name
    above = name.rpartition(".")[0]
    while above and not above.endswith(ANY):
        if above in known and typing.get_origin(known[above].field.type) is dict:
            return above
        above = above.rpartition(".")[0]
    return None


def _in_entry(name: str) -> tuple[str, str, str]:
    """`data.sources.mine.weight` -> ("data.sources", "mine", "weight"); empty texts for what `name` does not have."""
    for mapping in ENTRIES:
        if name.startswith(f"{mapping}."):
            entry, _, key = name.removeprefix(f"{mapping}.").partition(".")
            return mapping, entry, key
    return "", "", ""


def unknown(name: str) -> ConfigError:
    """What to say of a key that does not exist, or not in the chosen class."""
    known = catalogue()
    section, owners = name.split(".")[0], known[name].owners if name in known else ()
    if owners:
        return ConfigError(f"{name}: not a key of the chosen {section}; it belongs to {section}={' or '.join(owners)}")
    mapping, entry, key = _in_entry(name)
    if mapping and not key:
        return _no_entry(mapping, entry)
    if find(name):
        return ConfigError(f"{name}: not a key of this command; `rlvr config explain {name}` says what it is")
    near = nearest(name.replace("/", "."), known)
    if near and entry and near.startswith(f"{mapping}."):
        near = near.replace(ANY, entry)
    hint = f"; did you mean {near}?" if near else "; `rlvr config reference` lists them all"
    return ConfigError(f"{name}: no such key{hint}")


def _no_entry(mapping: str, entry: str) -> ConfigError:
    kind = mapping.rpartition(".")[2].removesuffix("s")
    return ConfigError(f"{mapping}.{entry}: no such {kind}; a new one {ENTRIES[mapping]}")


LISTED = 8  # most choices that a refusal spells out
TYPES = {int: "an integer", float: "a number", bool: "true or false", str: "text"}


def type_in_words(annotation: Any) -> str:
    """`int | None` -> "an integer or null"."""
    if isinstance(annotation, types.UnionType):
        return " or ".join("null" if a is type(None) else type_in_words(a) for a in typing.get_args(annotation))
    if is_dataclass(annotation):
        return f"a section with the keys {', '.join(f.name for f in fields(annotation))}"
    named = {list: "a list", dict: "a mapping"}
    return TYPES.get(annotation) or named.get(typing.get_origin(annotation), "any value")


# -- what Hydra refuses, in our words -------------------------------------------------------


@contextmanager
def refusals(where: str = "") -> Iterator[None]:
    """Turn what Hydra and OmegaConf raise into a ConfigError, with `where` behind its message."""
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(f"{_in_words(error)}{where}") from None


def _in_words(error: Exception) -> str:
    file = re.match(r"In '([^']+)'", str(error))
    where = f" (in {file[1]}.yaml)" if file and file[1] != "train" else ""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file in SWEEP_EXTRA:
        chosen = SWEEP_EXTRA[error.missing_cfg_file]
        return f"{chosen} is not installed: pip install 'rlvr[sweep]' (in a checkout: pip install -e '.[sweep]')"
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options is not None:
        group, _, option = error.missing_cfg_file.rpartition("/")
        near = nearest(option, error.options)
        few = len(error.options) <= LISTED
        others = f" ({', '.join(error.options)})" if few else f"; `rlvr config explain {group}` lists them"
        return f"{group}={option}: there is no such choice" + (f"; did you mean {group}={near}?" if near else others)
    if isinstance(error, OverrideParseException):
        name, _, value = error.override.partition("=")
        return f"{error.override}: Hydra cannot parse this; write key=value, and quote odd values: '{name}=\"{value}\"'"
    cause: BaseException | None = error
    while cause and not getattr(cause, "full_key", None):
        cause = cause.__cause__ or cause.__context__
    if isinstance(cause, OmegaConfBaseException):
        return _key_in_words(cause) + where
    twice = re.search(r"Multiple values for ([^.]+)\.", str(error))
    if twice:
        return f"{twice[1]}: there is a choice already; write {twice[1]}=... without the +{where}"
    no_match = re.search(r"Could not override '(?P<group>[^']+)'", str(error))
    if no_match:
        return str(unknown(no_match["group"])) + where
    return " ".join(line.strip() for line in str(error).splitlines() if line and not line.startswith("See https"))


def _key_in_words(error: OmegaConfBaseException) -> str:
    """An OmegaConf error that knows its key."""
    name = str(error.full_key)
    if part := re.search(r"not a subclass of (Source|Benchmark|Trigger|Stage)Config", str(error)):
        return str(_no_entry(next(m for m in ENTRIES if m.endswith(f"{part[1].lower()}s")), str(error.key)))
    entry = catalogue().get(find(name) or "")
    if isinstance(error, ConfigAttributeError | ConfigKeyError):
        return str(unknown(name))
    if isinstance(error, ValidationError) and entry:
        value = "null" if error.value is None else error.value
        return f"{name}={value}: must be {type_in_words(entry.field.type)}"
    if isinstance(error, ConfigTypeError):
        return f"{name}: a key cannot be deleted, only set"
    first = str(error.msg).splitlines()[0]
    return f"{name}: {re.sub(r'^[A-Za-z]+ (raised )?while resolving interpolation: ', '', first)}"
