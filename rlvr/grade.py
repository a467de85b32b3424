"""`rlvr grade`: verdicts on responses in a file, and the verifiers' self-test."""

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

import yaml

from rlvr.data.gold import gold
from rlvr.keys import ConfigError, nearest
from rlvr.records import Verdict
from rlvr.verifiers import VERIFIERS, Verifier, build, meets
from rlvr.verifiers.cheats import Subject, cheats, subject
from rlvr.verifiers.pool import Job, VerifierPool

USAGE = """usage: rlvr grade file=ROWS.jsonl [verifier=NAME] [options.KEY=VALUE ...] [out=FILE] [workers=2] [timeout=5]
       rlvr grade --selftest [verifier=NAME] [options.KEY=VALUE ...]

Grades responses with the verifiers that training uses, in the same pool of processes.

  file       JSON lines with "gold" (or "answer") and "response"; "verifier" and "options" of a row come before
             those of the command line; "expected": "right" or "wrong" is compared with the verdict
  verifier   {names}, or your own as path/to/file.py:name or package.module:name
  options    of the verifier, as options.extract=boxed
  out        verdicts as JSON lines: id, score, error, parts; by default ROWS.verdicts.jsonl in this directory
  workers    verifier processes, by default 2
  timeout    seconds for one response, by default 5

  --selftest let each verifier (or the one given) grade its canaries and a list of degenerate answers

exit code: 0; 1 if a verdict is not the expected one or a self-test fails; 2 for a wrong command line or file"""
KEYS = ("file", "verifier", "out", "workers", "timeout", "options")
RIGHT = 1 - 1e-9  # scores from here on are right; between 0 and this, partly right
EXPECTED = {"right": True, "wrong": False, True: True, False: False, None: None}
CHUNK = 512  # verdicts that are written at once


@dataclass(frozen=True)
class Request:
    """The command line."""

    file: Path | None = None
    verifier: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    out: Path | None = None
    workers: int = 2
    timeout: float = 5.0
    selftest: bool = False


@dataclass(frozen=True)
class Row:
    """A line of the file."""

    id: Any  # the line number where it has none
    job: Job
    expected: bool | None
    unusable: str | None  # why its gold cannot be used


@dataclass(frozen=True)
class Graded:
    """A row and what became of it."""

    row: Row
    verdict: Verdict

    @property
    def disagrees(self) -> bool:
        if self.row.expected is None:
            return False
        return self.verdict.score is None or (self.verdict.score >= RIGHT) != self.row.expected


def grade(arguments: list[str]) -> int:
    """Grade a file of responses, or test the verifiers themselves.

    Returns:
        0, or 1 if a verdict is not the expected one or a self-test fails.

    Raises:
        ConfigError: the command line or the file is wrong.
    """
    if "-h" in arguments or "--help" in arguments:
        print(USAGE.format(names=", ".join(VERIFIERS)))
        return 0
    request = parse(arguments)
    return selftest(request) if request.selftest else grade_file(request)


# -- the command line ----------------------------------------------------------------------------


def parse(arguments: Sequence[str]) -> Request:
    """Raises ConfigError for unknown keys (naming the nearest), wrong values, and what is missing."""
    given: dict[str, Any] = {"options": {}}
    for argument in arguments:
        if argument == "--selftest":
            given["selftest"] = True
            continue
        name, equals, text = argument.partition("=")
        if not equals or name.split(".")[0] not in KEYS:
            raise ConfigError(_no_such(argument, name))
        if name.startswith("options."):
            _put(given["options"], name.split(".")[1:], _value(text), name)
        elif name == "options":
            given["options"] |= _mapping(text)
        else:
            given[name] = _checked(name, text)
    if "selftest" not in given and "file" not in given:
        raise ConfigError("file=ROWS.jsonl is missing")
    if stray := [name for name in ("file", "out") if "selftest" in given and name in given]:
        raise ConfigError(f"{stray[0]}=... has no effect with --selftest")
    return Request(**given)


def _no_such(argument: str, name: str) -> str:
    known = [*(f"{key}=" for key in KEYS), "--selftest"]
    hint = nearest(name.split(".")[0], KEYS) if "=" in argument else nearest(argument, known)
    return f"{argument}: no such argument; " + (f"did you mean {hint}?" if hint else f"there are {', '.join(known)}")


def _checked(name: str, text: str) -> Any:
    if not text:
        raise ConfigError(f"{name}= is empty")
    if name in ("file", "out"):
        return Path(text).expanduser()
    if name == "verifier":
        return text
    value = _value(text)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{name}={text}: must be a number")
    if name == "workers" and (value != int(value) or value < 1):
        raise ConfigError(f"workers={text}: must be a whole number of at least 1")
    if not value > 0:
        raise ConfigError(f"{name}={text}: must be greater than 0")
    return int(value) if name == "workers" else float(value)


def _value(text: str) -> Any:
    """A value as typed: JSON (1e-3, true, null), else YAML's short forms ([a, b], {a: 1}), else text."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{text}: is neither JSON nor YAML: {' '.join(str(error).split())}") from None
    return value if isinstance(value, list | dict | bool) else text


def _mapping(text: str) -> dict[str, Any]:
    value = _value(text)
    if not isinstance(value, dict):
        raise ConfigError(f"options={text}: must be a mapping, as options={{extract: boxed}}")
    return value


def _put(options: dict[str, Any], path: list[str], value: Any, name: str) -> None:
    """options.a.b=1 -> {"a": {"b": 1}}."""
    for part in path[:-1]:
        options = options.setdefault(part, {})
        if not isinstance(options, dict):
            raise ConfigError(f"{name}: {part} has been given a value already")
    options[path[-1]] = value


# -- a file ------------------------------------------------------------------------------------------


def grade_file(request: Request) -> int:
    """Grade every row, write the verdicts and print the summary; 1 if a verdict is not the expected one."""
    assert request.file
    rows = list(read_rows(request.file, request))
    out = request.out or Path(f"{request.file.stem}.verdicts.jsonl")
    with ExitStack() as opened:
        written = opened.enter_context(_open(out, request.file))
        pool = opened.enter_context(VerifierPool(request.workers, request.timeout))
        start = time.perf_counter()
        try:
            for verifier, options in {_spec(row.job): (row.job.verifier, row.job.options) for row in rows}.values():
                pool.warm(verifier, options)
        except RuntimeError as error:  # it fails its own self-check here: no verdict could be trusted
            print(f"rlvr grade: {error}", file=sys.stderr)
            return 1
        ready = time.perf_counter()
        graded: list[Graded] = []
        for some in _graded(pool, rows):
            graded += some
            written.writelines(_line(one) for one in some)
        done = time.perf_counter()
    print(_summary(graded, request.file, out, ready - start, done - ready))
    wrong = [one for one in graded if one.disagrees]
    if wrong:
        print(_disagreements(wrong))
    return int(bool(wrong))


def _graded(pool: VerifierPool, rows: Sequence[Row]) -> Iterator[list[Graded]]:
    """All rows are queued at once and come back in their order, a chunk at a time."""
    tickets = {i: pool.submit(row.job) for i, row in enumerate(rows) if row.unusable is None}
    for first in range(0, len(rows), CHUNK):
        chunk = range(first, min(first + CHUNK, len(rows)))
        asked = [i for i in chunk if i in tickets]
        verdicts = dict(zip(asked, pool.gather(tickets[i] for i in asked), strict=True))
        yield [
            Graded(rows[i], verdicts.get(i) or Verdict(score=None, error=f"gold not usable: {rows[i].unusable}"))
            for i in chunk
        ]


def read_rows(file: Path, request: Request) -> Iterator[Row]:
    """The rows of a JSONL file.

    Raises:
        ConfigError: there are none; or, with the line number, a line is no row that can be graded.
    """
    if not file.is_file():
        raise ConfigError(f"file={file}: there is no such file")
    verifiers: dict[str, Verifier] = {}
    number = 0
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                yield _row(line, number, request, verifiers)
            except ConfigError as error:
                raise ConfigError(f"{file}, line {number}: {error}") from None
    if number == 0:
        raise ConfigError(f"file={file} is empty")


def _row(line: bytes, number: int, request: Request, verifiers: dict[str, Verifier]) -> Row:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"no JSON: {error}") from None
    if not isinstance(row, dict):
        raise ConfigError(f"a row is a JSON object, not {type(row).__name__}")
    expected = row.get("expected")
    if not isinstance(expected, str | bool | None) or expected not in EXPECTED:
        raise ConfigError(f'"expected" is {expected!r}; it must be "right" or "wrong"')
    job = _job(row, request)
    if (spec := _spec(job)) not in verifiers:  # a wrong name or option is refused before any process starts
        verifiers[spec] = build(job.verifier, job.options)
    try:
        job, unusable = replace(job, answer=gold(job.answer, {})), None
        verifiers[spec].check_answer(job.answer)
    except ValueError as error:
        unusable = str(error)
    return Row(row.get("id", number), job, EXPECTED[expected], unusable)


def _job(row: dict[str, Any], request: Request) -> Job:
    named = [name for name in ("gold", "answer") if name in row]
    if not named:
        raise ConfigError(f'the row has no "gold" (or "answer"); it has {", ".join(row) or "nothing"}')
    if not isinstance(row.get("response"), str):
        kind = f"is {type(row['response']).__name__}, not text" if "response" in row else "is missing"
        raise ConfigError(f'"response" {kind}')
    verifier = row.get("verifier") or request.verifier
    if not isinstance(verifier, str):
        raise ConfigError('no verifier; give verifier=NAME, or the row a "verifier"')
    own = row.get("options") or {}
    if not isinstance(own, dict):
        raise ConfigError(f'"options" is {type(own).__name__}, not an object')
    common = request.options if verifier == request.verifier else {}
    return Job(verifier=verifier, response=row["response"], answer=row[named[0]], options={**common, **own})


def _spec(job: Job) -> str:
    return json.dumps([job.verifier, job.options], sort_keys=True)


def _open(out: Path, file: Path) -> TextIO:
    if out.resolve() == file.resolve():
        raise ConfigError(f"out={out} would overwrite the rows")
    try:
        return out.open("w", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"out={out} cannot be written: {error.strerror}") from None


def _line(one: Graded) -> str:
    verdict = one.verdict
    told = {"id": one.row.id, "score": verdict.score, "error": verdict.error, "parts": verdict.parts}
    return json.dumps(told) + "\n"


def _summary(graded: Sequence[Graded], file: Path, out: Path, starting: float, seconds: float) -> str:
    scores = [one.verdict.score for one in graded if one.verdict.score is not None]
    causes = Counter(_cause(one.verdict.error) for one in graded if one.verdict.error is not None)
    names = Counter(one.row.job.verifier for one in graded)
    partly = sum(0 < score < RIGHT for score in scores)
    expecting = [one for one in graded if one.row.expected is not None]
    lines = [
        f"graded    {len(graded)} rows of {file} by {', '.join(names) or 'nothing'}",
        f"right     {sum(score >= RIGHT for score in scores)}",
        *([f"partly    {partly}, mean score {sum(scores) / len(scores):.3f}"] if partly else []),
        f"wrong     {sum(score <= 0 for score in scores)}",
        f"unjudged  {causes.total()}" + "".join(f"; {cause}: {count}" for cause, count in causes.most_common()),
        f"time      {seconds:.2f} s, {len(graded) / max(seconds, 1e-9):,.0f} rows/s; ready after {starting:.1f} s",
        f"verdicts  {out}",
    ]
    if expecting:
        lines.append(
            f"expected  {len(expecting)} rows say what is right, {sum(o.disagrees for o in expecting)} disagree"
        )
    return "\n".join(lines)


def _cause(error: str) -> str:
    return "timeout" if error.startswith("timeout after") else error.partition(":")[0]


def _disagreements(wrong: Sequence[Graded]) -> str:
    rows = [("id", "expected", "verdict", "gold", "response")]
    for one in wrong:
        verdict = f"{one.verdict.score:g}" if one.verdict.score is not None else f"unjudged ({one.verdict.error})"[:80]
        rows.append((
            str(one.row.id), "right" if one.row.expected else "wrong", _short(verdict, 80),
            _short(one.row.job.answer, 30), _short(one.row.job.response, 60),
        ))  # fmt: skip
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(["", *lines])


def _short(value: Any, most: int) -> str:
    """One line; of long texts the end, where the answer stands."""
    text = " ".join((value if isinstance(value, str) else json.dumps(value)).split())
    text = text.encode(errors="replace").decode()
    return text if len(text) <= most else "..." + text[3 - most :]


# -- the self-test -----------------------------------------------------------------------------------


def selftest(request: Request) -> int:
    """Canaries and degenerate answers of one verifier, or of all that are installed; 1 if a verdict is wrong."""
    failures: list[str] = []
    names = [request.verifier] if request.verifier else list(VERIFIERS)
    if request.options and not request.verifier:
        raise ConfigError("options.* need a verifier=NAME")
    print(f"{'verifier':<14}{'canaries':>9}{'cheats':>8}{'failed':>8}{'seconds':>9}")
    with VerifierPool(request.workers, request.timeout) as pool:
        for name in names:
            try:
                on = subject(name, request.options)
            except ConfigError as error:
                if request.verifier:
                    raise
                print(f"{name:<14}not tested: {error}")
                continue
            start = time.perf_counter()
            canaries, tried, failed = _test(pool, on)
            print(f"{name:<14}{canaries:>9}{tried:>8}{len(failed):>8}{time.perf_counter() - start:>9.2f}")
            failures += failed
    for failure in failures:
        print(failure, file=sys.stderr)
    return int(bool(failures))


def _test(pool: VerifierPool, on: Subject) -> tuple[int, int, list[str]]:
    """Number of canaries and of cheats, and what failed."""
    verifier = build(on.verifier, on.options)
    canaries = verifier.canaries or ((on.answer, on.given, True),)
    trials: list[tuple[str, Any, str, bool | None]] = []  # None: it must score 0
    trials += [(f"canary {given!r}", answer, verifier.present(given), right) for answer, given, right in canaries]
    trials += [(f"cheat {label!r}", on.answer, response, None) for label, response in cheats(on)]
    try:
        pool.warm(on.verifier, on.options)
    except RuntimeError as error:
        return len(canaries), len(trials) - len(canaries), [str(error)]
    jobs = [Job(verifier=on.verifier, response=r, answer=answer, options=on.options) for _, answer, r, _ in trials]
    verdicts = pool.gather([pool.submit(job) for job in jobs])
    failed = [
        f"{on.verifier}: {label} must {'be right' if right else 'score 0' if right is None else 'be wrong'}, "
        f"got {verdict.error or verdict.score}"
        for (label, _, _, right), verdict in zip(trials, verdicts, strict=True)
        if not (verdict.score == 0 if right is None else meets(verdict, right))
    ]
    return len(canaries), len(trials) - len(canaries), failed
