"""A reward made of weighted parts."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from rlvr.keys import ConfigError, nearest
from rlvr.records import Verdict
from rlvr.verifiers import build, self_check
from rlvr.verifiers.base import Verifier, judge

_KEYS = ("verifier", "weight", "options", "only_if")


@dataclass(frozen=True)
class Part:
    """One component: its verifier, its weight, and the part without which it pays nothing."""

    verifier: Verifier
    weight: float
    only_if: str | None


class Composite(Verifier):
    """The weighted mean of several verifiers of one response, clipped to [0, 1].

    With weights w_i and scores s_i the score is sum(w_i s_i) / sum of the positive w_i; a negative weight is a
    penalty.  Every part's score is logged under the part's name.  If one part cannot judge, neither can the whole.

    Args:
        parts: by name, `{verifier: ..., weight: 1.0, options: {...}, only_if: ...}`.  `verifier` is the name of any
            verifier (math, choice, ...; format, length and language look at the form alone) or your own (custom.py).
            `only_if` names another part; this one pays nothing where that one's score is 0, so that a well-formed
            wrong answer earns nothing.
    """

    name: ClassVar[str] = "composite"

    def __init__(self, parts: dict[str, dict[str, Any]]) -> None:
        if not isinstance(parts, dict) or not parts:
            raise ConfigError("verifier 'composite': parts must be a mapping of names to {verifier, weight, options}")
        self.parts = {str(name): _part(str(name), spec, parts) for name, spec in parts.items()}
        self.total = sum(part.weight for part in self.parts.values() if part.weight > 0)
        self.patience = sum(part.verifier.patience for part in self.parts.values())
        if self.total == 0:
            raise ConfigError("verifier 'composite': no part has a positive weight")

    def check_answer(self, answer: Any) -> None:
        for name, part in self.parts.items():
            try:
                part.verifier.check_answer(answer)
            except ValueError as error:
                raise ValueError(f"part {name}: {error}") from error

    def verify(self, response: str, answer: Any) -> Verdict:
        """Parts: each part's score by its name (before `only_if`), and its own parts as name/part."""
        scores: dict[str, float] = {}
        told: dict[str, float] = {}
        for name, part in self.parts.items():
            verdict = judge(part.verifier, response, answer)
            if verdict.score is None:
                return Verdict(score=None, error=f"{verdict.error} (part {name})")
            scores[name] = told[name] = verdict.score
            told |= {f"{name}/{inner}": value for inner, value in verdict.parts.items()}
        paid = {name: part for name, part in self.parts.items() if part.only_if is None or scores[part.only_if] > 0}
        mean = math.fsum(part.weight * scores[name] for name, part in paid.items()) / self.total
        return Verdict(score=min(max(mean, 0.0), 1.0), parts=told)


def _part(name: str, spec: Any, parts: dict[str, Any]) -> Part:
    where = f"verifier 'composite': parts.{name}"
    if not isinstance(spec, dict) or "verifier" not in spec:
        raise ConfigError(f"{where} must be {{verifier: ..., weight: ..., options: {{...}}}}")
    for key in spec:
        if key not in _KEYS:
            hint = nearest(str(key), _KEYS)
            raise ConfigError(f"{where}.{key}: no such key" + (f"; did you mean {hint}?" if hint else ""))
    weight, only_if = spec.get("weight", 1.0), spec.get("only_if")
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight) or weight == 0:
        raise ConfigError(f"{where}.weight={weight!r} must be a number other than 0")
    if only_if is not None and (only_if == name or only_if not in parts):
        raise ConfigError(f"{where}.only_if={only_if!r} must be the name of another part: {', '.join(parts)}")
    options = spec.get("options") or {}
    try:
        self_check(spec["verifier"], options)
    except RuntimeError as error:
        raise RuntimeError(f"{where}: {error}") from error
    return Part(build(spec["verifier"], options), float(weight), only_if)
