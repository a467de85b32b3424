"""What has changed in the configuration since a checkpoint was written, and what of it may."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

from rlvr.keys import ConfigError
from rlvr.schema.train import TrainConfig

# Keys and sections that say which experiment it is.  With another value, what was done before means something else.
FIXED = ("seed", "algorithm.name", "model", "data", "rollout.reference_seed")
FREE = ("model.lr", "model.trust_remote_code", "data.max_tokens")  # in spite of their sections: only defaults of others
NEVER_TOLD = ("run", "checkpoint.allow_missing")  # how to start, not what to run
ABSENT = "(not there)"


def plain(config: TrainConfig) -> dict[str, Any]:
    """The configuration as JSON has it."""
    told: dict[str, Any] = json.loads(json.dumps(asdict(config)))
    return told


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """(old, new) by dotted key, of all keys that differ."""
    old, new = dict(_flat(before)), dict(_flat(now))
    names = [*old, *(name for name in new if name not in old)]
    found = {name: (old.get(name, ABSENT), new.get(name, ABSENT)) for name in names}
    return {n: pair for n, pair in found.items() if pair[0] != pair[1] and not _within(n, NEVER_TOLD)}


def check_changes(found: Mapping[str, tuple[Any, Any]], allowed: Collection[str], where: str) -> None:
    """Refuse to go on with another experiment.

    Args:
        found: as `changes` gives it.
        allowed: keys and sections that may change all the same.
        where: the checkpoint.

    Raises:
        ConfigError: naming each key, with both values.
    """
    fixed = [n for n in found if _within(n, FIXED) and not _within(n, FREE) and not _within(n, allowed)]
    if fixed:
        names = ",".join(fixed)
        raise ConfigError(
            f"{where} was written with other values of keys that say which experiment it is:\n"
            f"{in_words({name: found[name] for name in fixed})}\n"
            f"put them back, give a new run.name, or allow it with 'run.allow_change=[{names}]'"
        )


def in_words(found: Mapping[str, tuple[Any, Any]]) -> str:
    """One line per key."""
    return "\n".join(f"  {name}: {json.dumps(old)} -> {json.dumps(new)}" for name, (old, new) in found.items())


def _within(name: str, sections: Collection[str]) -> bool:
    return any(name == section or name.startswith(f"{section}.") for section in sections)


def _flat(tree: Mapping[str, Any], path: str = "") -> list[tuple[str, Any]]:
    flat: list[tuple[str, Any]] = []
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            flat += _flat(value, f"{path}{name}.")
        else:
            flat.append((f"{path}{name}", value))
    return flat
