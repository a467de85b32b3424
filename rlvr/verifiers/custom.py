"""A user's own verifier: a function or a Verifier class, as `path/to/file.py:name` or `package.module:name`."""

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from rlvr.keys import ConfigError, nearest
from rlvr.records import Verdict
from rlvr.verifiers.base import Verifier


def is_own(name: str) -> bool:
    """Does the name of a verifier point at code, instead of being one that rlvr has?"""
    return ":" in name or name.endswith(".py")


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
    """The function or class that `path/to/file.py:name` or `package.module:name` points at.

    Both are looked for from the current directory; a module also where Python finds its packages.

    Raises:
        ConfigError: no such file, module or name, or it cannot be imported; the message names what is near.
    """
    where, _, name = path.rpartition(":")
    if not where or not name:
        raise ConfigError(f"verifier {path!r}: write it as path/to/file.py:name or package.module:name")
    module = _file(path, where) if where.endswith(".py") else _module(path, where)
    found = vars(module).get(name)
    if not callable(found):
        names = [known for known, value in vars(module).items() if callable(value) and not known.startswith("_")]
        hint = nearest(name, names)
        raise ConfigError(
            f"verifier {path!r}: {where} has no function or class {name}" + (f"; did you mean {hint}?" if hint else "")
        )
    return found


def _file(path: str, name: str) -> ModuleType:
    where = Path(name).expanduser()
    if not where.is_file():
        raise ConfigError(f"verifier {path!r}: there is no file {name} (looked from {os.getcwd()})")
    spec = importlib.util.spec_from_file_location(f"rlvr_custom_{where.stem}", where)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    with _told(path, name):
        spec.loader.exec_module(module)
    return module


def _module(path: str, name: str) -> ModuleType:
    here = os.getcwd()
    if not {here, ""} & set(sys.path):
        sys.path.append(here)
    with _told(path, name):
        return importlib.import_module(name)


@contextmanager
def _told(path: str, name: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise ConfigError(f"verifier {path!r}: {name} cannot be imported: {type(error).__name__}: {error}") from error
