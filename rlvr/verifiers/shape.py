"""How a response looks, whatever it says: format, length and language.  Parts of composite rewards."""

import re
from abc import abstractmethod
from typing import Any, ClassVar

from rlvr.keys import ConfigError
from rlvr.records import Verdict
from rlvr.verifiers.base import Verifier
from rlvr.verifiers.extract import after_thought
from rlvr.verifiers.language import check_language, is_in

UNITS = ("words", "characters")
THOUGHT = "<think>"
_WORD = re.compile(r"\w")


class Shape(Verifier):
    """A verifier that needs no right answer.

    Args:
        prefilled: the chat template opens the thought; see SpanVerifier.
    """

    def __init__(self, prefilled: bool = False) -> None:
        self.prefilled = prefilled

    def check_answer(self, answer: Any) -> None:
        """Any answer will do: none is looked at."""

    def verify(self, response: str, answer: Any) -> Verdict:
        return Verdict(score=self.measure(response))

    @abstractmethod
    def measure(self, response: str) -> float:
        """The score in [0, 1]."""


class Format(Shape):
    """1 if the response is made as asked for.

    Args:
        tags: names of tags, as ["think", "answer"]: the response is these elements in this order and nothing else,
            each once and with words in it.
        pattern: a regular expression that has to match somewhere (`.` matches line breaks too).
        prefilled: the prompt ends with `<think>`, which counts as the response's own, once.
    """

    name: ClassVar[str] = "format"

    def __init__(self, tags: list[str] | None = None, pattern: str | None = None, prefilled: bool = False) -> None:
        super().__init__(prefilled)
        if not tags and not pattern:
            raise ConfigError("verifier 'format' needs tags (such as [think, answer]) or pattern")
        if tags is not None and not (isinstance(tags, list) and all(re.fullmatch(r"\w+", str(tag)) for tag in tags)):
            raise ConfigError(f"verifier 'format': tags={tags!r} must be a list of names")
        try:
            self.pattern = re.compile(pattern, re.S) if pattern else None
        except re.error as error:
            raise ConfigError(f"verifier 'format': pattern={pattern!r} is no regular expression: {error}") from None
        self.tags = [str(tag) for tag in tags or []]

    def measure(self, response: str) -> float:
        if self.prefilled and not response.startswith(THOUGHT):  # whoever asks may have put it there
            response = THOUGHT + response
        matched = self.pattern is None or self.pattern.search(response) is not None
        return float(matched and self._tagged(response) and _WORD.search(response) is not None)

    def _tagged(self, response: str) -> bool:
        if not self.tags:
            return True
        elements = r"\s*".join(rf"<{tag}>(.*?)</{tag}>" for tag in self.tags)
        match = re.fullmatch(rf"\s*{elements}\s*", response, re.S)
        once = all(response.count(mark) == 1 for tag in self.tags for mark in (f"<{tag}>", f"</{tag}>"))
        return match is not None and once and all(_WORD.search(inside) for inside in match.groups())


class Length(Shape):
    """1 within [low, high], falling linearly to 0 at high + margin; 0 below low and for nothing.

    Args:
        high: longest response that costs nothing.
        low: shortest response that pays.
        margin: over which the score falls; 0 for a sharp limit.
        unit: "words" or "characters".
        whole: the reasoning counts too; else only the text after it.
        prefilled: see Shape.
    """

    name: ClassVar[str] = "length"

    def __init__(
        self,
        high: int,
        low: int = 1,
        margin: int = 0,
        unit: str = "words",
        whole: bool = True,
        prefilled: bool = False,
    ) -> None:
        super().__init__(prefilled)
        if unit not in UNITS:
            raise ConfigError(f"verifier 'length': unit={unit!r} must be one of {', '.join(UNITS)}")
        if not (1 <= low <= high and margin >= 0):
            raise ConfigError(
                f"verifier 'length': low={low}, high={high}, margin={margin}: 1 <= low <= high, margin >= 0"
            )
        self.low, self.high, self.margin, self.unit, self.whole = low, high, margin, unit, whole

    def measure(self, response: str) -> float:
        text = response if self.whole else after_thought(response, self.prefilled)
        size = len(re.findall(r"\w+", text)) if self.unit == "words" else len(text.strip())
        if size < self.low or not _WORD.search(text):
            return 0.0
        over = max(size - self.high, 0)
        return max(1 - over / self.margin, 0.0) if self.margin else float(over == 0)


class Language(Shape):
    """1 if the response is in a language.

    Args:
        language: its code, as "en".
        whole: the reasoning is looked at too; else only the text after it.
        prefilled: see Shape.
    """

    name: ClassVar[str] = "language"

    def __init__(self, language: str, whole: bool = True, prefilled: bool = False) -> None:
        super().__init__(prefilled)
        try:
            self.language = check_language(language)
        except ValueError as error:
            raise ConfigError(f"verifier 'language': language={error}") from None
        self.whole = whole

    def measure(self, response: str) -> float:
        text = re.sub(r"</?\w+>", " ", response) if self.whole else after_thought(response, self.prefilled)
        return float(is_in(text, self.language))
