"""The tests of a programming problem, in the shapes that data sets use, and whether what came out is right."""

import json
import re
from dataclasses import dataclass
from typing import Any

_DECIMAL = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?")  # an expected number that is not exact
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


@dataclass(frozen=True)
class Printed:
    """A test of a whole program."""

    stdin: str
    stdout: str


@dataclass(frozen=True)
class Returned:
    """A test of a function; the value must equal one of `returns`."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    returns: tuple[Any, ...]


@dataclass(frozen=True)
class Suite:
    """The tests of a problem, all of one kind; `function` is None for whole programs."""

    function: str | None
    tests: tuple[Printed | Returned, ...]


def read(answer: Any) -> Suite:
    """The tests of an answer, which may also be the JSON text of one.

    Raises:
        ValueError: no shape that is known, or tests that a program which does nothing would pass.
    """
    if isinstance(answer, str):
        try:
            answer = json.loads(answer)
        except ValueError:
            raise ValueError("the answer is text that is not JSON; tests are needed") from None
    if isinstance(answer, list):
        answer = {"tests": answer}
    if not isinstance(answer, dict):
        raise ValueError(f"the answer is a {type(answer).__name__}; a mapping with tests is needed")
    function = answer.get("function", answer.get("fn_name"))
    if function is not None and not (isinstance(function, str) and function.isidentifier()):
        raise ValueError(f"the function's name {function!r} is not a name")
    tests = _listed(answer, function)
    if not tests:
        raise ValueError("there are no tests")
    if function is None:
        return Suite(None, tuple(_printed(test, i) for i, test in enumerate(tests)))
    returned = tuple(_returned(test, i) for i, test in enumerate(tests))
    if all(test.returns == (None,) for test in returned):
        raise ValueError("every test expects null, which a function without a body returns")
    return Suite(function, returned)


def _listed(answer: dict[str, Any], function: str | None) -> list[Any]:
    """One mapping per test, from either a list of mappings or from parallel lists of inputs and outputs."""
    if "tests" in answer:
        if not isinstance(answer["tests"], list):
            raise ValueError('"tests" is not a list')
        return answer["tests"]
    inputs, outputs = answer.get("inputs"), answer.get("outputs")
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        raise ValueError('the answer has neither "tests" nor "inputs" and "outputs"')
    if len(inputs) != len(outputs):
        raise ValueError(f"there are {len(inputs)} inputs and {len(outputs)} outputs")
    pairs = list(zip(inputs, outputs, strict=True))
    if function is None or any(isinstance(given, str) for given in inputs):
        return [{"input": given, "output": wanted} for given, wanted in pairs]
    # these collections wrap values in a list of one, some of them and not reliably: then both readings are right
    wrapped = all(isinstance(wanted, list) and len(wanted) == 1 for wanted in outputs)
    return [{"args": given, "either": [wanted, *(wanted if wrapped else [])]} for given, wanted in pairs]


def _printed(test: Any, index: int) -> Printed:
    if not isinstance(test, dict):
        raise ValueError(f"test {index} is a {type(test).__name__}; a mapping with stdin and stdout is needed")
    if test.get("testtype") == "functional" or {"args", "returns"} & test.keys():
        raise ValueError(f"test {index} is of a function, and the answer does not name it")
    texts = []
    for name, other in (("stdin", "input"), ("stdout", "output")):
        text = test.get(name, test.get(other))
        if isinstance(text, list) and all(isinstance(line, str) for line in text):
            text = "\n".join(text)
        if not isinstance(text, str):
            raise ValueError(f"test {index} has no text as {name}")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"test {index}: {name} cannot be written as UTF-8: {error.reason}") from None
        texts.append(text)
    if not texts[1].split():
        raise ValueError(f"test {index} expects no output, which a program that does nothing prints")
    return Printed(*texts)


def _returned(test: Any, index: int) -> Returned:
    if not isinstance(test, dict):
        raise ValueError(f"test {index} is a {type(test).__name__}; a mapping with args and returns is needed")
    if "input" in test:
        return _from_text(test, index)
    args, kwargs = test.get("args", []), test.get("kwargs", {})
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise ValueError(f"test {index}: args must be a list and kwargs a mapping")
    if "either" not in test and "returns" not in test:
        raise ValueError(f"test {index} does not say what the function returns")
    return Returned(tuple(args), kwargs, tuple(test.get("either", [test.get("returns")])))


def _from_text(test: dict[str, Any], index: int) -> Returned:
    """LiveCodeBench writes one JSON value per line: the arguments, and the value."""
    try:
        args = tuple(json.loads(line) for line in test["input"].splitlines() if line.strip())
        wanted = test.get("output")
        return Returned(args, {}, (json.loads(wanted) if isinstance(wanted, str) else wanted,))
    except (ValueError, AttributeError):
        raise ValueError(f"test {index}: input or output of the function is not JSON, one value per line") from None


def same_output(given: str, wanted: str, tolerance: float) -> bool:
    """Equal token by token, tokens being what white space separates; decimals within the tolerance."""
    tokens, right = given.split(), wanted.split()
    return len(tokens) == len(right) and all(_same_token(*pair, tolerance) for pair in zip(tokens, right, strict=True))


def _same_token(given: str, wanted: str, tolerance: float) -> bool:
    if given == wanted:
        return True
    if not _DECIMAL.fullmatch(wanted) or not _NUMBER.fullmatch(given):
        return False
    return _close(float(given), float(wanted), tolerance)


def same_value(given: Any, wanted: Any, tolerance: float) -> bool:
    """Equal as JSON values: truth values are not numbers, floats agree within the tolerance."""
    if isinstance(given, bool) or isinstance(wanted, bool):
        return given is wanted
    if isinstance(given, int | float) and isinstance(wanted, int | float):
        if isinstance(wanted, float):
            return _close(given, wanted, tolerance)
        return given == wanted
    if type(given) is not type(wanted):
        return False
    if isinstance(wanted, list):
        return len(given) == len(wanted) and all(map(same_value, given, wanted, [tolerance] * len(wanted)))
    if isinstance(wanted, dict):
        return given.keys() == wanted.keys() and all(same_value(given[key], wanted[key], tolerance) for key in wanted)
    return bool(given == wanted)


def _close(given: float, wanted: float, tolerance: float) -> bool:
    """Within the tolerance absolutely or relatively; only relatively where the value is smaller than the tolerance."""
    size = abs(wanted)
    try:
        return abs(given - wanted) <= tolerance * (size if 0 < size < tolerance else max(1.0, size))
    except OverflowError:  # an integer that is too large for a float
        return False
