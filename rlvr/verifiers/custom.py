"""A user's own verifier: `path/to/file.py:name` of a function or of a Verifier class."""

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from rlvr.keys import ConfigError, nearest
from rlvr.records import Verdict
from rlvr.verifiers.base import Verifier


class Custom(Verifier):
    """Calls `function(response, answer, **options)`.

    The function returns a score in [0, 1], a dict of named parts that contains "score", or a Verdict.
    An exception or anything else is "could not judge".  A relative path is meant from the current directory.
    """

    name: ClassVar[str] = "custom"

    def __init__(self, path: str, options: dict[str, Any], function: Callable[..., Any]) -> None:
        self.path, self.options, self.function = path, options, function

    def check_answer(self, answer: Any) -> None:
        if answer is None:
            raise ValueError("the answer is missing")

    def verify(self, response: str, answer: Any) -> Verdict:
        """Raises TypeError or ValueError where the function's result is not a verdict."""
        given = self.function(response, answer, **self.options)
        if isinstance(given, Verdict):
            return given
        if isinstance(given, (bool, int, float)):
            return Verdict(score=float(given))
        if isinstance(given, dict):
            if "score" not in given:
                raise ValueError(f'{self.path} returned a dict without "score": {sorted(given)}')
            parts = {str(part): float(value) for part, value in given.items() if part != "score"}
            return Verdict(score=float(given["score"]), parts=parts)
        kind = type(given).__name__
        raise TypeError(f"{self.path} returned {kind}; return a score, a dict with a score, or a Verdict")


def load(path: str) -> Callable[..., Any]:
    """The function or class that `path/to/file.py:name` points at.

    Raises:
        ConfigError: no such file or name, or the file cannot be imported; the message names what is near.
    """
    file, _, function = path.rpartition(":")
    if not file or not function:
        raise ConfigError(f"verifier {path!r}: write it as path/to/file.py:function (or :Class)")
    where = Path(file).expanduser()
    if not where.is_file():
        raise ConfigError(f"verifier {path!r}: there is no file {file} (looked from {os.getcwd()})")
    spec = importlib.util.spec_from_file_location(f"rlvr_custom_{where.stem}", where)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigError(f"verifier {path!r}: {file} cannot be imported: {type(error).__name__}: {error}") from error
    found = vars(module).get(function)
    if not callable(found):
        names = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        hint = nearest(function, names)
        raise ConfigError(
            f"verifier {path!r}: {file} has no function or class {function}"
            + (f"; did you mean {hint}?" if hint else "")
        )
    return found
