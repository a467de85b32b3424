"""Keys of `data.*` and `verify.*`: problems, their three roles, and how answers are judged."""

from dataclasses import dataclass
from typing import Any

from rlvr.keys import ConfigError, UsedIf, key

KINDS = ("arithmetic", "gym", "file", "hub")
_COLUMNS = UsedIf("the source's kind is file or hub", lambda c: c.kind in ("file", "hub"))


@dataclass(kw_only=True)
class SourceConfig:
    """One source of problems; the roles train, validation and test must not overlap."""

    kind: str = key(
        "where rows come from: generated sums (arithmetic), reasoning-gym (gym), JSONL or Parquet files (file), "
        "the Hugging Face Hub (hub)",
        choices=KINDS,
    )
    train: str | None = key(
        "rows to train on: a count for generators, a path for files (package:NAME for shipped samples), a split for "
        "the hub; both of the latter may end in a slice such as [500:]; null for none"
    )
    validation: str | None = key("rows that choose checkpoints and fire triggers; same forms as train")
    test: str | None = key("rows that are reported and never decide anything; same forms as train")
    verifier: str = key("verifier of the answers: a name, or your own as path/to/file.py:name or package.module:name")
    path: str | None = key(
        "name of the data set on the hub", used_if=UsedIf("the source's kind is hub", lambda c: c.kind == "hub")
    )
    subset: str | None = key(
        "its configuration on the hub", used_if=UsedIf("the source's kind is hub", lambda c: c.kind == "hub")
    )
    question: str = key(
        "column of the problem text, or of a list of chat messages; of several with | between them, the first that a "
        "row has",
        used_if=_COLUMNS,
    )
    answer: str = key(
        "column of the right answer; dots reach into nested columns, several with commas between them make a mapping",
        used_if=_COLUMNS,
    )
    weight: float = key(
        "share of training prompts drawn from this source, relative to the other sources; 0 until a stage brings it in",
        low=0,
    )
    template: str | None = key(
        "text of the user's turn for this source, where it is not data.template; {question} is replaced by the problem",
        empty=lambda: None,
    )
    options: dict[str, Any] = key(
        "arguments of the generator or of the answer column; unknown ones are refused", empty=dict
    )
    verifier_options: dict[str, Any] = key("arguments of the verifier; unknown ones are refused", empty=dict)


@dataclass(kw_only=True)
class DataConfig:
    """What is learned from."""

    name: str = key("name of the data set, as in conf/data/")
    sources: dict[str, SourceConfig] = key("named sources; training mixes them by weight", empty=dict)
    template: str = key("text of the user's turn; {question} is replaced by the problem")
    system: str | None = key("system message; null for none")
    max_tokens: int = key("length that answers need; rollout.max_tokens is this unless it is set", unit="tokens", low=1)
    max_prompt_tokens: int = key("longest prompt", unit="tokens", low=1)
    too_long: str = key(
        "what happens to longer prompts: left out (drop), cut at their start (cut), or refused (error)",
        choices=("drop", "cut", "error"),
    )
    ungradable: str = key("what happens to rows whose own answer the verifier cannot use", choices=("drop", "error"))
    overlap: str = key(
        "training rows that are also in validation, test or a benchmark: refused (error; in validation and test if "
        "they are equal), or left out (drop; equal or nearly so)",
        choices=("error", "drop"),
    )
    benchmarks: list[str] = key(
        "what training rows may not overlap beside validation and test: names of sources, or files of problems",
        empty=list,
    )
    survey: str | None = key("survey.jsonl of the training rows, which says how often each was solved; null for none")
    pass_rate: list[float] = key(
        "lowest and highest share of solved responses of rows to train on, such as [0.1, 0.9]",
        empty=list,
        used_if=UsedIf("data.survey is set", lambda c: c.survey is not None),
    )
    retire: list[int] = key(
        "[groups, steps]: a prompt all of whose responses were right in so many groups in a row is not drawn for so "
        "many steps, and then tried again; empty for never",
        empty=list,
    )


def check_retire(config: DataConfig) -> None:
    """Raises ConfigError unless data.retire is empty or two numbers of at least 1."""
    if len(config.retire) not in (0, 2) or any(number < 1 for number in config.retire):
        raise ConfigError(
            f"data.retire={list(config.retire)}: must be the groups in a row that have to be right and the steps to "
            "rest, both at least 1, such as [3, 100]"
        )


@dataclass(kw_only=True)
class VerifyConfig:
    """The pool of verifier processes."""

    workers: int = key("verifier processes per rank", unit="processes", low=1)
    timeout: float = key(
        "wall clock of one response, unless its verifier asks for more, as code does; past it the process is killed "
        "and replaced",
        unit="seconds",
        above=0,
    )
