"""`rlvr data`: look at the rows before they are trained on."""

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import quantiles
from typing import Any

from rlvr.config import compose
from rlvr.data.files import READERS
from rlvr.data.sources import ROLES, LoadReport, load_rows, read_rows
from rlvr.data.template import Renderer, opened_thought
from rlvr.keys import ConfigError
from rlvr.records import Prompt, Role, Row
from rlvr.rollout.judge import check_answer
from rlvr.schema.train import TrainConfig
from rlvr.verifiers.choice import letter_shares

USAGE = "rlvr data check|show|stats [FILE] [KEY=VALUE ...]"
ABOUT = """Look at the rows of a configuration, or of a file of rows {id, prompt or messages, answer, verifier, source}.

  check   golds that the verifiers cannot use, repeated and contradicting questions, overlap between roles and with
          data.benchmarks, letters of right options; the exit code is 1 if there is anything to mend
  show    the first prompts of every source as the model sees them, token by token
  stats   sources, lengths against the limit, verifiers and answers

KEY=VALUE are those of `rlvr train`, such as data=gsm8k model=qwen2_5_1_5b.  A FILE is given to data=file."""
CASES = 10  # of a finding that are spelt out
TOKENS = 300  # most tokens of a prompt that are spelt out
BARS = 10  # of a histogram
LONGEST_BAR = 40  # characters


def data(arguments: list[str]) -> int:
    """Check, show or count the rows that a configuration trains on.

    Returns:
        0, or 1 if rows have to be mended.

    Raises:
        ConfigError: the command line is wrong.
    """
    parser = argparse.ArgumentParser(
        prog="rlvr data", usage=USAGE, description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("way", choices=WAYS, metavar="check|show|stats")
    parser.add_argument("arguments", nargs="*", metavar="FILE, KEY=VALUE")
    parser.add_argument("--config-dir", type=Path, help="directory with YAMLs of your own")
    parser.add_argument("--rows", type=int, default=1, help="prompts per source and role that are shown, by default 1")
    parsed = parser.parse_intermixed_args(arguments)
    config = compose(overrides(parsed.arguments, parsed.config_dir))
    try:
        return WAYS[parsed.way](config, parsed.rows)
    except ConfigError:
        raise
    except ValueError as error:
        print(f"rlvr data: {error}", file=sys.stderr)
        return 1


def overrides(arguments: Sequence[str], config_dir: Path | None) -> list[str]:
    """The command line as overrides of `rlvr train`.

    Raises:
        ConfigError: if there is more than one file, or no such directory.
    """
    # A micro-batch that cannot hold a prompt is not the rows' fault.
    given = [f"hardware.tokens_per_micro_batch={2**40}"]
    if config_dir:
        if not config_dir.is_dir():
            raise ConfigError(f"--config-dir {config_dir}: there is no such directory")
        given.append(f"hydra.searchpath=[{_quoted(f'file://{config_dir.resolve()}')}]")
    paths = [argument for argument in arguments if _is_file(argument)]
    if len(paths) > 1:
        raise ConfigError(f"{paths[1]}: one file at a time; give others as data.sources.file.validation=...")
    for path in paths:
        given += ["data=file", f"data.sources.file.train={_quoted(path)}", "data.sources.file.validation=null"]
    return given + [argument for argument in arguments if argument not in paths]


def _is_file(argument: str) -> bool:
    return "=" not in argument and argument.partition("[")[0].endswith(tuple(READERS))


def _quoted(text: str) -> str:
    """In Hydra's quotes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


# -- check ---------------------------------------------------------------------------------------


def check(config: TrainConfig, _: int) -> int:
    """Print what is wrong with the rows; 1 if anything has to be mended."""
    from rlvr.data.checks import findings  # brings numpy, which other verbs need not wait for

    rows: dict[Role, list[Row]] = {}
    bad = 0
    for role in ROLES:
        rows[role], report = read_rows(config.data, role, check_answer, Path.cwd())
        if report.sources:
            print(report)
        bad += sum(len(source.ungradable) for source in report.sources)
    for finding in findings(config.data, rows, Path.cwd()):
        bad += len(finding.cases) if finding.refused else 0
        print(f"{'refused' if finding.refused else 'note'}: {len(finding.cases)} {finding.title}")
        print("\n".join(f"  {case}" for case in finding.cases[:CASES]))
        if len(finding.cases) > CASES:
            print(f"  and {len(finding.cases) - CASES} more")
    for line in _letters(rows):
        print(line)
    if not any(rows.values()):
        print("there are no rows to use")
        return 1
    print(f"{bad} to mend" if bad else "nothing to mend")
    return int(bad > 0)


def _letters(rows: dict[Role, list[Row]]) -> Iterator[str]:
    for role, some in rows.items():
        for source, own in _by_source(some).items():
            answers = [row.answer for row in own if row.verifier == "choice"]
            shares = letter_shares(answers)
            if not shares.counts:
                continue
            total = sum(shares.counts.values())
            told = ", ".join(f"{letter} {count / total:.0%}" for letter, count in shares.counts.items())
            skewed = ": skewed, always answering one letter would pay; shuffle the options" if shares.skewed else ""
            yield f"letters of {source} ({role}): {told} of {total}, p = {shares.p_value:.2g}{skewed}"


# -- show and stats --------------------------------------------------------------------------------


def show(config: TrainConfig, count: int) -> int:
    """Print the first prompts of every source of every role, with their tokens."""
    renderer = _renderer(config)
    for role, report, rows in _loaded(config):
        print(report)
        for own in _by_source(rows).values():
            for row in own[:count]:
                _print_prompt(renderer.render(row), role, renderer.tokenizer, config.data.max_prompt_tokens)
    return 0


def _print_prompt(prompt: Prompt, role: Role, tokenizer: Any, limit: int) -> None:
    long = f", more than data.max_prompt_tokens={limit}" if len(prompt.tokens) > limit else ""
    print(f"\n=== {prompt.id} ({role}): {len(prompt.tokens)} tokens{long}; verifier {prompt.verifier}")
    print(prompt.text)
    print(f"--- answer: {_short(prompt.answer, 300)}")
    if thought := opened_thought(prompt.text):
        print(f"--- completions begin inside a thought: the prompt ends with {thought}")
    shown = prompt.tokens[:TOKENS]
    words = [f"{token}:{tokenizer.decode([token])!r}" for token in shown]
    more = f"\nand {len(prompt.tokens) - TOKENS} more" if len(prompt.tokens) > TOKENS else ""
    print(f"--- tokens: {' '.join(words)}{more}")


def stats(config: TrainConfig, _: int) -> int:
    """Print sources, lengths and answers of every role."""
    renderer = _renderer(config)
    limit = config.data.max_prompt_tokens
    for role, report, rows in _loaded(config):
        print(report)
        lengths = [len(renderer.render(row).tokens) for row in rows]
        print(f"\nlengths of prompts in tokens of model={config.model.name}, data.max_prompt_tokens={limit}")
        print("\n".join([*_histogram(lengths, limit), ""]))
        for source, own in _by_source(rows).items():
            verifiers = Counter(row.verifier for row in own)
            told = ", ".join(f"{name} {count}" for name, count in verifiers.most_common())
            print(f"{source}: {len(own)} rows, {len(own) / len(rows):.1%} of {role}; verifiers: {told}")
            print(f"  answers: {_answers(own)}")
        print()
    return 0


def _histogram(lengths: list[int], limit: int) -> list[str]:
    """Quantiles and bars; those beyond the limit say so."""
    cuts = quantiles(lengths, n=100, method="inclusive") if len(lengths) > 1 else [lengths[0]] * 99
    over = sum(length > limit for length in lengths)
    lines = [
        f"  shortest {min(lengths)}, median {cuts[49]:.0f}, 90 % {cuts[89]:.0f}, 99 % {cuts[98]:.0f}, "
        f"longest {max(lengths)}; {over} of {len(lengths)} over the limit"
    ]
    low, width = min(lengths), max(1, math.ceil((max(lengths) - min(lengths) + 1) / BARS))
    counts = Counter((length - low) // width for length in lengths)
    for bar in range(max(counts) + 1):
        size = math.ceil(LONGEST_BAR * counts[bar] / max(counts.values()))
        mark = "  over the limit" if low + bar * width > limit else ""
        span = f"{low + bar * width:>6} to {low + (bar + 1) * width - 1:>6}"
        lines.append(f"  {span}  {'#' * size:<{LONGEST_BAR}} {counts[bar]:>7}{mark}")
    return lines


def _answers(rows: Sequence[Row]) -> str:
    """How many different ones, and how much always giving the commonest would pay."""
    counts = Counter(_short(row.answer, 10_000) for row in rows)
    kinds = Counter(type(row.answer).__name__ for row in rows)
    told = {"str": "text", "dict": "mapping", "list": "list"}
    common = ", ".join(f"{_short(answer, 40)} ({count / len(rows):.1%})" for answer, count in counts.most_common(3))
    return f"{', '.join(told.get(kind, kind) for kind in kinds)}; {len(counts)} different; commonest {common}"


def _loaded(config: TrainConfig) -> Iterator[tuple[Role, LoadReport, list[Row]]]:
    """Roles that have rows."""
    for role in ROLES:
        rows, report = load_rows(replace(config.data, survey=None), role, check_answer, Path.cwd())
        if rows:
            yield role, report, rows


def _renderer(config: TrainConfig) -> Renderer:
    from rlvr.engine.models import load_tokenizer  # brings torch, which `check` does not need

    return Renderer(load_tokenizer(config.model), config.model, config.data)


def _by_source(rows: Sequence[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.source, []).append(row)
    return groups


def _short(value: Any, most: int) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 3] + "..."


WAYS = {"check": check, "show": show, "stats": stats}
