"""Declare and check configuration keys: type on the left, meaning, unit and range on the right.

A key's value lives in `conf/`; its type, unit, range and documentation live in one dataclass field
under `rlvr/schema/`.  This module knows nothing of RL and imports nothing heavy, so that a wrong
command line is refused within a second.
"""

import difflib
from collections.abc import Callable, Collection, Iterator
from dataclasses import Field, dataclass, field, fields, is_dataclass
from typing import Any, get_args, get_origin

MISSING = "???"  # OmegaConf's mark for "no value yet": the value lives in conf/
ANY = "<name>"  # stands for the name of an entry in the key of one: data.sources.<name>.weight


class ConfigError(ValueError):
    """The configuration is wrong; the message names the key as a user would type it."""


class RunError(RuntimeError):
    """The surroundings of a run have failed it; the message alone says what happened and what to do."""


@dataclass(frozen=True)
class UsedIf:
    """When a key has an effect: `holds` sees the key's own section, `text` says it in words."""

    text: str
    holds: Callable[[Any], bool]


def key(
    doc: str,
    *,
    unit: str | None = None,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    choices: Collection[str] | Collection[int] | None = None,
    used_if: UsedIf | None = None,
    empty: Callable[[], Any] | None = None,
) -> Any:
    """One configuration key, as a dataclass field.

    Args:
        doc: what it means, one sentence.
        unit: "tokens", "sequences", "seconds", ...
        low, high: the closed range; `above` is an open lower end.
        choices: the allowed words, or numbers; of a list, those of its items.
        used_if: a key that was set where it has no effect is an error.
        empty: makes the value of a key that need not be given: `dict`, `list`, or a function that returns None.
    """
    told = dict(doc=doc, unit=unit, low=low, high=high, above=above, choices=choices, used_if=used_if)
    if empty:
        return field(default_factory=empty, metadata=told)
    return field(default=MISSING, metadata=told)


def nearest(name: str, known: Collection[str]) -> str | None:
    """The known dotted key that looks most like `name`, or None if nothing is near."""
    leaf = name.rsplit(".", 1)[-1]
    same_leaf = [k for k in known if k.rsplit(".", 1)[-1] == leaf]
    if same_leaf:
        return max(same_leaf, key=lambda k: difflib.SequenceMatcher(None, name, k).ratio())
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if close:
        return close[0]
    by_leaf = {k.rsplit(".", 1)[-1]: k for k in known}
    close = difflib.get_close_matches(leaf, by_leaf, n=1, cutoff=0.7)
    return by_leaf[close[0]] if close else None


def walk(schema: type, path: str = "") -> Iterator[tuple[str, Field]]:
    """Every key below a config dataclass *type*, with its dotted path; an entry of a mapping is called `ANY`."""
    for f in fields(schema):
        yield f"{path}{f.name}", f
        if is_dataclass(f.type):
            yield from walk(f.type, f"{path}{f.name}.")  # type: ignore[arg-type]
        elif entry := entry_type(f.type):
            yield from walk(entry, f"{path}{f.name}.{ANY}.")


def entry_type(annotation: Any) -> type | None:
    """The config dataclass of which a mapping holds instances by name; None for any other type."""
    held = get_args(annotation)[1:] if get_origin(annotation) is dict else ()
    return next((kind for kind in held if isinstance(kind, type) and is_dataclass(kind)), None)


def check(config: Any, given: Collection[str] = (), path: str = "") -> None:
    """Check ranges, choices, stray attributes and keys that were given but have no effect.

    Args:
        config: a config dataclass instance (nested ones are checked too).
        given: dotted names of the keys that the user set explicitly.
        path: where `config` stands, with a trailing dot; "" for the root.

    Raises:
        ConfigError: naming the key, its value and what is allowed.
    """
    names = {f.name for f in fields(config)}
    for stray in sorted(set(vars(config)) - names):
        hint = nearest(stray, names)
        raise ConfigError(f"{path}{stray}: no such key" + (f"; did you mean {path}{hint}?" if hint else ""))
    for f in fields(config):
        _check_one(config, f, f"{path}{f.name}", given)


def _check_one(section: Any, f: Field, name: str, given: Collection[str]) -> None:
    value, told = getattr(section, f.name), f.metadata
    used_if: UsedIf | None = told.get("used_if")
    if used_if and name in given and not used_if.holds(section):
        raise ConfigError(f"{name} is set but has no effect: it is used only if {used_if.text}")
    if is_dataclass(value):
        check(value, given, f"{name}.")
    elif isinstance(value, dict):
        for entry, item in value.items():
            if is_dataclass(item):
                check(item, given, f"{name}.{entry}.")
    elif value is not None:
        _check_value(value, told, name)


def _check_value(value: Any, told: Any, name: str) -> None:
    choices = told.get("choices")
    for item in value if isinstance(value, list) else [value]:
        if not choices or item in choices:
            continue
        hint = nearest(str(item), list(map(str, choices)))
        raise ConfigError(
            f"{name}={item}: must be one of {', '.join(map(str, choices))}"
            + (f"; did you mean {hint}?" if hint else "")
        )
    unit = f" {told['unit']}" if told.get("unit") else ""
    low, high, above = told.get("low"), told.get("high"), told.get("above")
    if above is not None and not value > above:
        raise ConfigError(f"{name}={value}: must be greater than {above}{unit}")
    if low is not None and not value >= low:
        raise ConfigError(f"{name}={value}: must be at least {low}{unit}")
    if high is not None and not value <= high:
        raise ConfigError(f"{name}={value}: must be at most {high}{unit}")
