"""What a source hands over before it is checked, and the small rules that all kinds of sources share."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from rlvr.keys import ConfigError, nearest
from rlvr.records import Role
from rlvr.schema.data import SourceConfig

# The order in which generators hand out problems: asking for more training rows never moves the held-out ones.
DEAL: tuple[Role, ...] = ("test", "validation", "train")


@dataclass(frozen=True)
class Raw:
    """A row as it was read: `number` is its place in the file, split or generated role; anything else may be None.

    The last three are what a row of a file says of itself.
    """

    number: int
    question: Any
    answer: Any
    id: Any = None
    source: Any = None
    verifier: Any = None


def rows_asked(source: SourceConfig, role: Role) -> str | None:
    """What the config says for a role: a count, a path or a split; None for no rows."""
    return {"train": source.train, "validation": source.validation, "test": source.test}[role]


def count(source: SourceConfig, name: str, role: Role) -> int:
    """How many rows of a generator `role` asks for; 0 for null.

    Raises:
        ConfigError: unless it is a positive whole number.
    """
    asked = rows_asked(source, role)
    if asked is None:
        return 0
    if not re.fullmatch(r"[1-9][0-9_]*", asked):
        raise ConfigError(
            f"data.sources.{name}.{role}={asked}: with kind={source.kind} this is a count of rows, at least 1; "
            "null for none"
        )
    return int(asked)


def check_options(source: SourceConfig, name: str, known: Collection[str], required: Collection[str] = ()) -> None:
    """Refuse unknown and missing `options`.

    Raises:
        ConfigError: naming the option, the nearest known one, and all known ones.
    """
    for option in source.options:
        if option not in known:
            hint = nearest(option, known)
            raise ConfigError(
                f"data.sources.{name}.options.{option}: no such option of kind={source.kind}"
                + (f"; did you mean {hint}?" if hint else "")
                + f" Known: {', '.join(known)}"
            )
    for option in required:
        if option not in source.options:
            raise ConfigError(f"data.sources.{name}.options.{option} is missing; kind={source.kind} needs it")


def whole(source: SourceConfig, name: str, option: str, low: int) -> int:
    """An option that is a whole number of at least `low`; raises ConfigError if it is not."""
    value = source.options[option]
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ConfigError(f"data.sources.{name}.options.{option}={value}: must be a whole number of at least {low}")
    return value


def messages_of(question: Any) -> tuple[dict[str, str], ...]:
    """Chat messages of a question column: a text becomes one user message.

    Raises:
        ValueError: if it is neither a text nor a list of {role, content} texts that ends with the user's.
    """
    if question is None:
        raise ValueError("no question (missing or null)")
    if isinstance(question, str):
        question = [{"role": "user", "content": question}]
    if not isinstance(question, list) or not question:
        raise ValueError(f"the question is neither a text nor a list of chat messages but {type(question).__name__}")
    for message in question:
        if not isinstance(message, dict) or not all(isinstance(message.get(part), str) for part in ("role", "content")):
            raise ValueError("a chat message of the question is not {role: text, content: text}")
    if question[-1]["role"] != "user" or not question[-1]["content"].strip():
        raise ValueError("the question does not end with a user message that says something")
    return tuple({"role": message["role"], "content": message["content"]} for message in question)


def text_of(messages: Collection[dict[str, str]]) -> str:
    """All that the messages say."""
    return "\n".join(message["content"] for message in messages)


def normalised(text: str) -> str:
    """The form in which two questions are compared: lower case, one space between words, none next to punctuation."""
    return re.sub(r"\s*([^\w\s])\s*", r"\1", " ".join(text.lower().split()))
