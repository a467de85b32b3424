"""Keys of `data.*` and `verify.*`: problems, their three roles, and how answers are judged."""

from dataclasses import dataclass
from typing import Any

from rlvr.keys import UsedIf, key

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
        "rows to train on: a count for generators, a path for files, a split for the hub; both of the latter may end in "
        "a slice such as [500:]; null for none"
    )
    validation: str | None = key("rows that choose checkpoints and fire triggers; same forms as train")
    test: str | None = key("rows that are reported and never decide anything; same forms as train")
    verifier: str = key("verifier of the answers: a name, or path/to/file.py:function for your own")
    path: str | None = key("name of the data set on the hub", used_if=UsedIf("the source's kind is hub", lambda c: c.kind == "hub"))
    subset: str | None = key("its configuration on the hub", used_if=UsedIf("the source's kind is hub", lambda c: c.kind == "hub"))
    question: str = key("column of the problem text, or of a list of chat messages", used_if=_COLUMNS)
    answer: str = key("column of the right answer; dots reach into nested columns", used_if=_COLUMNS)
    weight: float = key("share of training prompts drawn from this source, relative to the other sources", above=0)
    options: dict[str, Any] = key("arguments of the generator or of the answer column; unknown ones are refused", empty=dict)
    verifier_options: dict[str, Any] = key("arguments of the verifier; unknown ones are refused", empty=dict)


@dataclass(kw_only=True)
class DataConfig:
    """What is learned from."""

    name: str = key("name of the data set, as in conf/data/")
    sources: dict[str, SourceConfig] = key("named sources; training mixes them by weight", empty=dict)
    template: str = key("text of the user's turn; {question} is replaced by the problem")
    system: str | None = key("system message; null for none")
    max_prompt_tokens: int = key("longest prompt", unit="tokens", low=1)
    too_long: str = key("what happens to longer prompts", choices=("drop", "error"))
    ungradable: str = key("what happens to rows whose own answer the verifier cannot use", choices=("drop", "error"))


@dataclass(kw_only=True)
class VerifyConfig:
    """The pool of verifier processes."""

    workers: int = key("verifier processes per rank", unit="processes", low=1)
    timeout: float = key("wall clock of one response; past it the process is killed and replaced", unit="seconds", above=0)
    max_unjudged: float = key(
        "the run stops when more than this share of a step's responses could not be judged", unit="fraction", low=0, high=1
    )
