"""Keys of `triggers.*` and `stages.*`: what may happen between two steps of a run, and when."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rlvr.keys import ConfigError, key


class Event(StrEnum):
    """A command to the trainer, carried out at the end of a step; several at once are done in this order."""

    WARN = "warn"  # tell the cause
    SKIP = "skip"  # tell the cause: a guard has left out an update
    RESTORE_BEST = "restore_best"  # weights and moments <- checkpoint of the best validation accuracy
    RESET_REFERENCE = "reset_reference"  # reference <- policy
    RESET_OPTIMIZER = "reset_optimizer"  # forget the moments
    NEXT_STAGE = "next_stage"  # the next entry of `stages`
    STOP = "stop"  # this step was the last one
    ABORT = "abort"  # the run has failed: it ends without a checkpoint


ENTRY = (Event.RESTORE_BEST, Event.RESET_REFERENCE, Event.RESET_OPTIMIZER)  # what a stage may begin with
WHEN = ("validation_plateau", "validation_drop", "kl_spike", "entropy_collapse", "length_explosion")
TREATMENTS = tuple(event for event in Event if event != Event.SKIP)  # what a trigger may ask for
VALIDATED = ("validation_plateau", "validation_drop")


@dataclass(kw_only=True)
class TriggerConfig:
    """A condition on the history of one metric, and what is done where it holds."""

    when: str = key("the condition; docs/prolonged_training.md has their formulas", choices=WHEN)
    window: int = key("validations, or steps for the others, that the condition looks back on", low=1)
    threshold: float = key(
        "validation_plateau, validation_drop: fraction of accuracy; kl_spike, entropy_collapse: nats per token; "
        "length_explosion: ratio",
        low=0,
    )
    cooldown: int = key("steps after a firing in which it does not fire again", unit="steps", low=0)
    then: list[str] = key(f"events, of {', '.join(TREATMENTS)}")


@dataclass(kw_only=True)
class StageConfig:
    """A part of a run with values of its own."""

    until: int | None = key(
        "completed steps of the run at which the next stage begins; null: a trigger's next_stage begins it, or none "
        "follows",
        unit="steps",
        low=1,
    )
    overrides: dict[str, Any] = key("values by dotted key; they stay for the stages that follow", empty=dict)
    reset: list[str] = key(f"events at the entry, of {', '.join(ENTRY)}", empty=list)


def check_triggers(config: Any) -> None:
    """Triggers that could not fire, or whose events could not be carried out, in a TrainConfig.

    Raises:
        ConfigError: naming the trigger's key.
    """
    for name, trigger in config.triggers.items():
        where = f"triggers.{name}"
        if not trigger.then:
            raise ConfigError(f"{where}.then is empty: name at least one of {', '.join(TREATMENTS)}")
        for event in trigger.then:
            if event not in TREATMENTS:
                raise ConfigError(f"{where}.then: {event} is no event; it must be one of {', '.join(TREATMENTS)}")
        if trigger.when in VALIDATED:
            _needs_validation(config, f"{where}.when={trigger.when}")
        if trigger.when == "length_explosion" and trigger.threshold <= 1:
            raise ConfigError(f"{where}.threshold={trigger.threshold}: must be greater than 1, a ratio of lengths")
        if Event.NEXT_STAGE in trigger.then and not config.stages:
            raise ConfigError(f"{where}.then has next_stage, but there are no stages")
        check_restorable(config, trigger.then, f"{where}.then")


def check_restorable(config: Any, events: list[str], where: str) -> None:
    """Whether there will be a best checkpoint to restore, where `events` ask for it.

    Raises:
        ConfigError: naming `where`.
    """
    if Event.RESTORE_BEST in events:
        needs_best(config, f"{where} has restore_best")


def needs_best(config: Any, who: str) -> None:
    """Refuse what restores the best checkpoint in a run that keeps none.

    Raises:
        ConfigError: beginning with `who`.
    """
    _needs_validation(config, f"{who}, which")
    if not config.checkpoint.best:
        raise ConfigError(f"{who}, but checkpoint.best=false keeps no best checkpoint")


def _needs_validation(config: Any, who: str) -> None:
    if not config.validation.every:
        raise ConfigError(f"{who} reads validations, but validation.every=0 makes none")
    if all(source.validation is None for source in config.data.sources.values()):
        raise ConfigError(f"{who} reads validations, but data.sources.<name>.validation is null for every source")
