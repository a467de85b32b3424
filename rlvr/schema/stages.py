"""Stages of a run: which keys they may change, and the configurations that come of it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from rlvr.keys import ConfigError, check, nearest
from rlvr.schema.triggers import ENTRY, Event, StageConfig, check_restorable

if TYPE_CHECKING:
    from rlvr.schema.train import TrainConfig

# Read anew in every step by those who use them, and by nobody only at the start.
CHANGEABLE = (
    "algorithm.group",
    "algorithm.kl_coef",
    "algorithm.overlong_buffer",
    "algorithm.overlong_factor",
    "algorithm.unfinished_penalty",
    "algorithm.length_penalty",
    "algorithm.length_penalty_on",
    "algorithm.length_penalty_off",
    "rollout.max_tokens",
    "rollout.temperature",
    "optim.lr",
)


def changeable(config: TrainConfig) -> list[str]:
    """The keys of `config` that a stage may change."""
    fixed = [name for name in CHANGEABLE if name.rpartition(".")[2] in _types(_section(config, name))]
    return [*fixed, *(f"data.sources.{source}.weight" for source in config.data.sources)]


def put(config: TrainConfig, name: str, value: Any) -> None:
    """Set a changeable key.

    The sections of a run are handed to their owners once and never rewritten, with this exception: `trainer.stages`
    uses it on the configuration of a run when a stage begins.
    """
    section, field = _section(config, name), name.rpartition(".")[2]
    setattr(section, field, float(value) if _types(section)[field] is float else value)


def staged(config: TrainConfig) -> list[TrainConfig]:
    """The configuration of each stage: that of the run, changed by the overrides of all stages up to this one.

    Without stages, that of the run alone.
    """
    made, changes = [], dict[str, Any]()
    for stage in config.stages.values():
        changes |= stage.overrides
        made.append(copy.deepcopy(config))
        for name, value in changes.items():
            put(made[-1], name, value)
    return made or [config]


def check_stages(config: TrainConfig, check_across: Callable[[TrainConfig], None]) -> None:
    """Check every stage as if it were a run.

    Args:
        check_across: finds contradictions between the sections of a configuration.

    Raises:
        ConfigError: naming the stage.
    """
    for name, stage in config.stages.items():
        _check_names(config, f"stages.{name}", stage)
    _check_calendar(config)
    for (name, stage), made in zip(config.stages.items(), staged(config), strict=False):
        try:
            check(made, given=stage.overrides)
            check_across(made)
        except ConfigError as error:
            raise ConfigError(f"in stages.{name}: {error}") from None


def _check_names(config: TrainConfig, where: str, stage: StageConfig) -> None:
    known = changeable(config)
    for name, value in stage.overrides.items():
        if name not in known:
            near = nearest(name, known)
            hint = f"did you mean {near}?" if near else f"it may change {', '.join(known)}"
            raise ConfigError(f"{where}.overrides: {name} is no key that a stage may change; {hint}")
        wanted = _types(_section(config, name))[name.rpartition(".")[2]]
        if type(value) is not wanted and not (wanted is float and type(value) is int):
            told = "a number" if wanted is float else "an integer"
            raise ConfigError(f"{where}.overrides: {name}={value}: must be {told}")
    for event in stage.reset:
        if event not in ENTRY:
            raise ConfigError(f"{where}.reset: {event} must be one of {', '.join(ENTRY)}")
    check_restorable(config, stage.reset, f"{where}.reset")


def _check_calendar(config: TrainConfig) -> None:
    """Every stage must come to its turn."""
    triggered = any(Event.NEXT_STAGE in trigger.then for trigger in config.triggers.values())
    passed = 0
    *before, last = [(f"stages.{name}.until", stage.until) for name, stage in config.stages.items()] or [("", None)]
    for name, until in before:
        if until is None and not triggered:
            raise ConfigError(
                f"{name}=null: the stages after it are never reached; give a step, or a trigger whose `then` has "
                "next_stage"
            )
        if until is not None and not passed < until < config.steps:
            raise ConfigError(
                f"{name}={until}: must lie after that of the stage before it ({passed}) and before steps={config.steps}"
            )
        passed = until or passed
    if last[1] is not None:
        raise ConfigError(f"{last[0]}={last[1]}: no stage follows; the last one lasts to the end of the run (null)")


def _section(config: TrainConfig, name: str) -> Any:
    section: Any = config
    for part in name.split(".")[:-1]:
        section = section[part] if isinstance(section, dict) else getattr(section, part)
    return section


def _types(section: Any) -> dict[str, Any]:
    return {f.name: f.type for f in fields(section)}
