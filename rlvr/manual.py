"""What the configuration keys mean, as text: `rlvr config explain`, docs/config.md and `rlvr train --help`."""

import re
from collections.abc import Iterator
from dataclasses import Field, fields, is_dataclass
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import yaml

from rlvr.config import SUBCLASSED, Entry, catalogue, find, type_in_words, unknown
from rlvr.keys import entry_type
from rlvr.schema.eval import EvalConfig
from rlvr.schema.train import TrainConfig

GROUPS = ("algorithm", "model", "data", "hardware", "machine", "slurm", "experiment")
MIXINS = {  # groups that are no sections: they change keys of others
    "machine": "what `rlvr plan` takes devices for, where they are not those that hardware=... describes",
    "experiment": "named changes of keys of several sections",
}
COMMON = (
    "steps",
    "seed",
    "run.name",
    "rollout.prompts",
    "rollout.max_tokens",
    "algorithm.group",
    "algorithm.kl_coef",
    "optim.lr",
    "hardware.ranks",
    "validation.every",
)


class Setting(NamedTuple):
    """A value in a YAML of `conf/`."""

    value: Any
    file: str


# -- values, as the YAMLs give them --------------------------------------------------------


def choices(group: str) -> list[str]:
    """The options of a config group."""
    folder = files("rlvr.conf") / group
    return sorted(f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml"))


def describe(group: str, option: str) -> str:
    """What an option says of itself: the first line of its YAML, a comment."""
    comments = (line[1:].strip() for line in _text(f"{group}/{option}.yaml").splitlines() if line.startswith("#"))
    return next((c for c in comments if not c.startswith("@")), "")


def setting(name: str, option: str | None = None) -> Setting | None:
    """Where a key gets its value from: a root of conf/, or an option of its group, by default that of train.yaml."""
    section, _, rest = name.partition(".")
    if section not in GROUPS:
        return _look_up("train", name) or _look_up("eval", name)
    chosen = option or _chosen()[section]
    return _look_up(f"{section}/{chosen}", rest) if chosen and rest else None


def _look_up(file: str, name: str) -> Setting | None:
    """The value of `name` in a YAML or in those it builds on."""
    values: Any = _load(file)
    bases = [b for b in values.get("defaults", []) if isinstance(b, str) and b != "_self_" and "schema" not in b]
    for part in name.split("."):
        if not isinstance(values, dict) or part not in values:
            break
        values = values[part]
    else:
        return Setting(values, f"conf/{file}.yaml")
    folder = file.rpartition("/")[0]
    found = (_look_up(f"{folder}/{base}", name) for base in reversed(bases))
    return next(filter(None, found), None)


def _chosen() -> dict[str, str | None]:
    """The option of each group that train.yaml chooses, and the suite that eval.yaml does."""
    entries = [*_load("eval")["defaults"], *_load("train")["defaults"]]
    return {k: v for entry in entries if isinstance(entry, dict) for k, v in entry.items()}


@cache
def _load(file: str) -> dict[str, Any]:
    return yaml.safe_load(_text(f"{file}.yaml")) or {}


def _text(path: str) -> str:
    return files("rlvr.conf").joinpath(path).read_text(encoding="utf-8")


def _shown(value: Any) -> str:
    """A value as one would type it."""
    words = {None: "null", True: "true", False: "false"}
    return words[value] if value is None or isinstance(value, bool) else str(value)


# -- one key ---------------------------------------------------------------------------------


def explain(name: str) -> str:
    """All there is to know of a key, a section or a config group.

    Raises:
        ConfigError: if there is no such key; it names the nearest.
    """
    if name in MIXINS:
        return "\n".join([name, f"    {MIXINS[name]}", *_options(name)])
    known, key = catalogue(), find(name)
    if key is None:
        raise unknown(name)
    entry = known[key]
    section = name.partition(".")[0]
    lines = [name, f"    {entry.field.metadata['doc']}", ""]
    if below := [k for k in known if k.startswith(f"{key}.")]:
        width = max(36, *(len(k) + 2 for k in below))
        lines += [f"    {k:<{width}}{known[k].field.metadata['doc']}" for k in below]
        return "\n".join(lines + ([""] + _options(name) if name in (*GROUPS, "eval") else []))
    lines.append(f"    type      {_type(entry.field)}")
    told = setting(name)
    if told:
        lines.append(f"    default   {_shown(told.value)}, from {told.file}")
    if section in GROUPS:
        lines += [f"    otherwise {_shown(s.value)}, from {s.file}" for s in _elsewhere(name, told)]
    if entry.field.metadata["used_if"]:
        lines.append(f"    effect    only if {entry.field.metadata['used_if'].text}")
    if entry.owners and len(entry.owners) < len(SUBCLASSED[section]):
        lines.append(f"    belongs   to {section}={' or '.join(entry.owners)}")
    return "\n".join(lines)


def _elsewhere(name: str, told: Setting | None) -> list[Setting]:
    """Other values that options of the key's group give it, each file once."""
    section = name.partition(".")[0]
    found = {s.file: s for option in choices(section) if (s := setting(name, option))}
    return [s for s in found.values() if told is None or s.value != told.value]


def _options(group: str) -> list[str]:
    chosen = _chosen()[group]
    marked = [(option, "*" if option == chosen else " ") for option in choices(group)]
    return [f"  {mark} {group}={option:<24} {describe(group, option)}".rstrip() for option, mark in marked]


def _type(field: Field) -> str:
    """Type, unit, range and choices in words."""
    told = field.metadata
    if told["choices"]:
        null = ", null" if "null" in type_in_words(field.type) else ""
        return ", ".join(map(str, told["choices"])) + null
    words = type_in_words(field.type) + (f" ({told['unit']})" if told["unit"] else "")
    low, high, above = told["low"], told["high"], told["above"]
    if low is not None and high is not None:
        return f"{words}, only {low}" if low == high else f"{words}, {low} to {high}"
    bounds = {"at least": low, "at most": high, "more than": above}
    return ", ".join([words, *(f"{word} {bound}" for word, bound in bounds.items() if bound is not None)])


# -- all keys --------------------------------------------------------------------------------


def reference() -> str:
    """docs/config.md: every key, in Markdown."""
    roots = [f.name for f in fields(TrainConfig)]
    sections = [k for k in roots if is_dataclass(catalogue()[k].field.type) or entry_type(catalogue()[k].field.type)]
    lines = [
        "# Configuration reference",
        "",
        "Every key of `rlvr train`. This page is generated by `make docs` from `rlvr/schema/` (meaning, type, range)",
        "and `conf/` (values); `rlvr config explain KEY` prints one entry.",
        "",
        *_table(k for k in roots if k not in sections),
    ]
    for section in sections:
        lines += [f"## `{section}`", "", _about(catalogue()[section].field), ""]
        if section in GROUPS:
            lines += _choice_table(section)
        lines += _section(section)
    for group, doc in MIXINS.items():
        lines += [f"## `{group}`", "", f"{doc[0].upper()}{doc[1:]}.", "", *_choice_table(group)]
    return "\n".join([*lines, *_evaluation()]).rstrip() + "\n"


def _evaluation() -> list[str]:
    """The keys that `rlvr eval` has of its own, or that mean something else there."""
    return [
        "## `eval`",
        "",
        "Keys of `rlvr eval` ([evaluation.md](evaluation.md)). `seed`, `run.name`, `model`, `hardware`, `verify` are",
        "as above, and the `data` of a benchmark has the keys of `data`.",
        "",
        *_table(list(_evaluated()), evaluation=True),
        *_choice_table("eval"),
    ]


def _evaluated() -> dict[str, Entry]:
    own = {"checkpoint": EvalConfig.__dataclass_fields__["checkpoint"]}
    known = {k: e for k, e in catalogue().items() if k.partition(".")[0] in ("origin", "eval") and k != "eval"}
    return {k: Entry(f, ()) for k, f in own.items()} | known


def _about(section: Field) -> str:
    """What a section is; of one with named entries, also what each of these is."""
    if entry := entry_type(section.type):
        doc = section.metadata["doc"]
        return f"{doc[0].upper()}{doc[1:]}. {entry.__doc__}"
    return str(section.type.__doc__)


def _section(section: str) -> list[str]:
    known = {k: e for k, e in catalogue().items() if k.startswith(f"{section}.")}
    if section not in SUBCLASSED:
        return _table(k for k in known)
    schemas, lines, seen = SUBCLASSED[section], [], set[str]()
    shared = [k for k, e in known.items() if len(e.owners) == len(schemas)]
    lines += _table(shared)
    seen.update(shared)
    for name, schema in schemas.items():
        own = [k for k, e in known.items() if k not in seen and name in e.owners]
        if own:
            lines += [f"### `{section}={name}`", "", f"{schema.__doc__}", "", *_table(own, name)]
            seen.update(own)
    return lines


def _table(keys: Iterator[str] | list[str], option: str | None = None, evaluation: bool = False) -> list[str]:
    known = _evaluated() if evaluation else catalogue()
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for name in keys:
        field = known[name].field
        within = is_dataclass(field.type)  # a section of a section: its keys follow
        told = _look_up("eval", name) if evaluation else setting(name, option)
        told = None if within or entry_type(field.type) else told
        doc, used_if = field.metadata["doc"], field.metadata["used_if"]
        meaning = doc + (f"; used only if {used_if.text}" if used_if else "")
        default = f"`{_shown(told.value)}`" if told else ""
        kind = "a section" if within else _type(field)
        lines.append(f"| `{name}` | {kind} | {default} | {_cell(meaning)} |")
    return [*lines, ""]


def _choice_table(group: str) -> list[str]:
    default = _chosen()[group]
    lines = [f"| `{group}=` | |", "|---|---|"]
    for option in choices(group):
        lines.append(f"| `{option}`{' (default)' if option == default else ''} | {_cell(describe(group, option))} |")
    return [*lines, ""]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


# -- train --help ------------------------------------------------------------------------------


def train_help() -> str:
    """The page of `rlvr train --help`."""
    lines = ["usage: rlvr train [GROUP=CHOICE ...] [KEY=VALUE ...] [Hydra's options]", "", "groups (* is the default):"]
    for group in GROUPS:
        names = [f"*{o}" if o == _chosen()[group] else o for o in choices(group)]
        lines.append(f"  {group:<12}{', '.join(names)}")
    lines += ["", "keys that are often set (`rlvr config reference` lists all, `rlvr config explain KEY` tells more):"]
    known = catalogue()
    for name in COMMON:
        told = setting(name)
        shown = _shown(told.value) if told else ""
        same = re.fullmatch(r"\$\{([\w.]+)\}", shown)
        value = same[1] if same else "" if "${" in shown else shown
        lines.append(f"  {name:<20}{value:<17}{known[name].field.metadata['doc']}")
    return "\n".join([*lines, "", EXAMPLES])


EXAMPLES = """examples:
  rlvr train                                             a minute and a half on a CPU, no download
  rlvr train algorithm=dapo steps=50 run.name=first      a named run; the same command resumes it
  rlvr train -m seed=0,1,2 algorithm=grpo,dapo           a sweep of six runs
  rlvr train experiment=gsm8k_qwen2_5_1_5b               eight GPUs
  rlvr train --config-dir my_conf data=mine              groups of your own, in my_conf/data/mine.yaml
  rlvr train --cfg job --resolve                         print the configuration and stop

Hydra's options: -m (sweep), --config-dir, --cfg, --info, -sc (tab completion); `rlvr train --hydra-help` has more."""
