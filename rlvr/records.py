"""The records that stages hand to each other, from a data row to a graded completion.

Plain Python: no torch here, so that verifier processes and data checks start fast.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["train", "validation", "test"]
Source = Literal["policy", "reference"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One problem as a data source gives it, before any tokenizer has seen it.

    Example: Row(id="gsm8k/train/17", source="gsm8k", messages=({"role": "user", "content": "What is 2+3?"},),
    answer="5", verifier="number")
    """

    id: str  # "<source>/<role>/<row number>", stable between runs
    source: str  # name of the entry under data.sources
    messages: tuple[dict[str, str], ...]  # chat messages; a plain prompt is one user message
    answer: Any  # JSON value that the verifier understands
    verifier: str


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A row rendered and tokenized for one model."""

    id: str
    source: str
    text: str  # what the tokens spell, special tokens included
    tokens: tuple[int, ...]
    answer: Any
    verifier: str
    facts: dict[str, float] = field(default_factory=dict)  # learned by a survey, for example v_star


@dataclass(frozen=True, kw_only=True)
class Completion:
    """One sampled continuation of a prompt."""

    tokens: tuple[int, ...]  # the stop token included, when there is one
    logprobs: tuple[float, ...]  # of these tokens, by the sampler, at the sampling temperature
    text: str  # special tokens left out
    truncated: bool  # ended by the length limit, not by a stop token
    source: Source


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a verifier says of one response: right or wrong with a score, or that it could not judge.

    `score` is None exactly when `error` says why the response could not be judged; such a sample
    is kept out of the loss and counted, never booked as wrong.
    """

    score: float | None  # 0 (wrong) to 1 (right)
    parts: dict[str, float] = field(default_factory=dict)  # named components, logged per source
    error: str | None = None
    answer: str | None = None  # the final answer in a normal form, "" for none found; None: nothing of the kind is read
