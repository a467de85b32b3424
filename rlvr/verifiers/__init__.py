"""Verifiers: text of a response and the right answer -> Verdict.  No torch in this room."""

import importlib
import inspect
from typing import Any

from rlvr.keys import ConfigError, nearest
from rlvr.records import Verdict
from rlvr.verifiers.base import Verifier, judge

__all__ = ["VERIFIERS", "Verdict", "Verifier", "build", "judge", "meets", "self_check"]

# Every verifier by name, as module:class; imported when first built, so that a run pays only for what it uses.
VERIFIERS: dict[str, str] = {
    "exact": "rlvr.verifiers.exact:Exact",
    "number": "rlvr.verifiers.number:Number",
    "math": "rlvr.verifiers.math:Math",
    "choice": "rlvr.verifiers.choice:Choice",
    "code": "rlvr.verifiers.code:Code",
    "gym": "rlvr.verifiers.gym:Gym",
    "instructions": "rlvr.verifiers.instructions:Instructions",
    "format": "rlvr.verifiers.shape:Format",
    "length": "rlvr.verifiers.shape:Length",
    "language": "rlvr.verifiers.shape:Language",
    "composite": "rlvr.verifiers.composite:Composite",
}


def build(name: str, options: dict[str, Any] | None = None) -> Verifier:
    """The verifier called `name`, or the function or Verifier class that it points at (see custom.py).

    Raises:
        ConfigError: no such verifier, file, module, function or option; the message names what is near.
    """
    from rlvr.verifiers.custom import Custom, is_own, load

    options = dict(options or {})
    if is_own(name):
        own = load(name)
        if not (isinstance(own, type) and issubclass(own, Verifier)):
            return Custom(name, options, own)
        _check_options(name, own, options)
        return own(**options)
    if name not in VERIFIERS:
        hint = nearest(name, VERIFIERS)
        raise ConfigError(
            f"verifier {name!r}: no such verifier; "
            + (f"did you mean {hint!r}? " if hint else "")
            + f"There are {', '.join(VERIFIERS)}, and path/to/file.py:name or package.module:name for your own"
        )
    module, cls = VERIFIERS[name].split(":")
    made: type[Verifier] = getattr(importlib.import_module(module), cls)
    _check_options(name, made, options)
    return made(**options)


def _check_options(name: str, made: type[Verifier], options: dict[str, Any]) -> None:
    parameters = inspect.signature(made).parameters
    known = list(parameters)
    for option in options:
        if option not in known:
            hint = nearest(option, known)
            raise ConfigError(
                f"verifier {name!r} has no option {option!r}; "
                + (f"did you mean {hint!r}? " if hint else "")
                + f"It has {', '.join(known) or 'none'}"
            )
    for option, parameter in parameters.items():
        if parameter.default is parameter.empty and option not in options:
            raise ConfigError(f"verifier {name!r} needs its option {option!r}")


def meets(verdict: Verdict, right: bool) -> bool:
    """Is the verdict on a canary the one that it must get?  A wrong one may earn a part, where parts are paid."""
    return verdict.score is not None and (verdict.score >= 1) == right


def self_check(name: str, options: dict[str, Any] | None = None) -> None:
    """Build a verifier and let it grade its canary pairs; a broken parser stops a run here, not as zero rewards.

    Raises:
        RuntimeError: naming the first pair that is graded wrongly.
        ConfigError: if it cannot be built.
    """
    verifier = build(name, options)
    for gold, given, right in verifier.canaries:
        verdict = judge(verifier, verifier.present(given), gold)
        if not meets(verdict, right):
            told = verdict.error or f"score {verdict.score}"
            raise RuntimeError(
                f"verifier {name!r} fails its self-check: answer {gold!r}, response {given!r} must be "
                f"{'right' if right else 'wrong'}, got {told}; a library it rests on is missing or of another version"
            )
