"""Keys of `health.*`: what a run may not become, and what is done about it."""

from dataclasses import dataclass, fields
from typing import Any

from rlvr.keys import UsedIf, key
from rlvr.schema.triggers import needs_best

_ON = UsedIf("the guard's action is not off", lambda c: c.action != "off")
_DONE = (
    "warn tells it once per episode; skip leaves out the update, restore also goes back to the best checkpoint, stop "
    "ends the run as failed"
)


@dataclass(kw_only=True)
class LimitConfig:
    """A guard on the latest value of what is known before an update moves the weights."""

    action: str = key(_DONE, choices=("off", "warn", "skip", "restore", "stop"))
    limit: float = key("past it the action follows; the guard's own line says what it bounds", low=0, used_if=_ON)


@dataclass(kw_only=True)
class GuardConfig(LimitConfig):
    """A guard that looks back."""

    window: int = key("measurements that it looks back on", low=1, used_if=_ON)


@dataclass(kw_only=True)
class NonFiniteConfig:
    """A guard that has no limit, and cannot be off: an update that is not finite is never applied."""

    action: str = key(_DONE, choices=("skip", "restore", "stop"))


@dataclass(kw_only=True)
class LateGuardConfig(GuardConfig):
    """A guard on what is known only after the updates of a step."""

    action: str = key(_DONE, choices=("off", "warn", "restore", "stop"))


@dataclass(kw_only=True)
class AlarmConfig(GuardConfig):
    """A guard on what no other weights would mend."""

    action: str = key(_DONE, choices=("off", "warn", "stop"))


@dataclass(kw_only=True)
class StandstillConfig:
    """A guard on a run that does nothing."""

    action: str = key(_DONE, choices=("off", "warn", "stop"))
    window: int = key("measurements in a row that must be 0", low=1, used_if=_ON)


@dataclass(kw_only=True)
class HealthConfig:
    """Guards: docs/health.md has their formulas."""

    patience: int = key("updates skipped in a row, by any guard, at which the run stops", unit="updates", low=1)
    restores: int = key("restorations by guards in a run; the next one stops it", low=0)
    nonfinite: NonFiniteConfig = key("a loss, a gradient or a reward that is NaN or infinite")
    gradient_spike: GuardConfig = key("gradient norm: ratio to the median of the `window` updates before")
    kl: GuardConfig = key("mean KL (k3) to the reference over `window` updates, nats per token, where it is measured")
    entropy_low: GuardConfig = key("mean entropy over `window` updates, in nats per token: the limit is the lowest")
    entropy_high: GuardConfig = key("mean entropy over `window` updates, in nats per token: the limit is the highest")
    length: GuardConfig = key("mean response length over `window` steps: ratio to the `window` before, or its inverse")
    repetition: GuardConfig = key("mean share of repeated 4-grams of tokens in the responses of `window` steps")
    mismatch: LimitConfig = key("mean |log p_learner - log p_sampler| of a step's tokens, in nats")
    unjudged: GuardConfig = key("mean share of the responses of `window` steps that could not be judged")
    over_optimization: LateGuardConfig = key(
        "validation accuracy: the last `window` are all more than this fraction below the best, at a higher reward"
    )
    memory: AlarmConfig = key("growth of a process's host memory over `window` steps, in MiB per step")
    idle: StandstillConfig = key("steps with a gradient of 0: nothing is learned")
    starved: StandstillConfig = key("steps in which the algorithm rejected every prompt")


def check_health(config: Any) -> None:
    """Whether there will be a best checkpoint, where a guard would restore it, in a TrainConfig.

    Raises:
        ConfigError: naming the guard's key.
    """
    for f in fields(config.health):
        if getattr(getattr(config.health, f.name), "action", None) == "restore":
            needs_best(config, f"health.{f.name}.action=restore")
