"""Instruction following: does a response do what the prompt says about its form?"""

import inspect
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal, get_args

from rlvr.keys import ConfigError, nearest
from rlvr.records import Verdict
from rlvr.verifiers import instruction_arguments as arg
from rlvr.verifiers import instruction_checks as check
from rlvr.verifiers.base import Canary, Verifier
from rlvr.verifiers.extract import after_thought

Mode = Literal["strict", "loose", "fraction"]

_INVISIBLE = re.compile(r"[\u00ad\u200b\u2060\ufeff]")  # not the joiners, which Persian and Indic scripts need
_ID_NAMES = ("instruction_id_list", "instruction_ids", "instruction_id", "id")


@dataclass(frozen=True)
class Kind:
    """One type of instruction: its check and what each of its arguments may be."""

    follows: Callable[..., bool]
    arguments: dict[str, Callable[[Any], Any]]


def _kind(follows: Callable[..., bool], **arguments: Callable[[Any], Any]) -> Kind:
    assert list(inspect.signature(follows).parameters)[1:] == list(arguments), follows
    return Kind(follows, arguments)


KINDS: dict[str, Kind] = {
    "keywords:existence": _kind(check.keyword_existence, keywords=arg.texts),
    "keywords:frequency": _kind(check.keyword_frequency, keyword=arg.text, frequency=arg.count, relation=arg.relation),
    "keywords:forbidden_words": _kind(check.forbidden_words, forbidden_words=arg.texts),
    "keywords:letter_frequency": _kind(
        check.letter_frequency, letter=arg.letter, let_frequency=arg.count, let_relation=arg.relation
    ),
    "language:response_language": _kind(check.response_language, language=arg.language),
    "length_constraints:number_sentences": _kind(
        check.number_sentences, num_sentences=arg.count, relation=arg.relation
    ),
    "length_constraints:number_paragraphs": _kind(check.number_paragraphs, num_paragraphs=arg.count),
    "length_constraints:number_words": _kind(check.number_words, num_words=arg.count, relation=arg.relation),
    "length_constraints:nth_paragraph_first_word": _kind(
        check.nth_paragraph_first_word, num_paragraphs=arg.count, nth_paragraph=arg.count, first_word=arg.word
    ),
    "detectable_content:number_placeholders": _kind(check.number_placeholders, num_placeholders=arg.count),
    "detectable_content:postscript": _kind(check.postscript, postscript_marker=arg.text),
    "detectable_format:number_bullet_lists": _kind(check.number_bullet_lists, num_bullets=arg.count),
    "detectable_format:constrained_response": _kind(check.constrained_response),
    "detectable_format:number_highlighted_sections": _kind(check.number_highlighted_sections, num_highlights=arg.count),
    "detectable_format:multiple_sections": _kind(
        check.multiple_sections, section_spliter=arg.text, num_sections=arg.count
    ),
    "detectable_format:json_format": _kind(check.json_format),
    "detectable_format:title": _kind(check.title),
    "combination:two_responses": _kind(check.two_responses),
    "combination:repeat_prompt": _kind(check.repeat_prompt, prompt_to_repeat=arg.text),
    "startend:end_checker": _kind(check.end_checker, end_phrase=arg.text),
    "startend:quotation": _kind(check.quotation),
    "change_case:capital_word_frequency": _kind(
        check.capital_word_frequency, capital_frequency=arg.count, capital_relation=arg.relation
    ),
    "change_case:english_capital": _kind(check.english_capital),
    "change_case:english_lowercase": _kind(check.english_lowercase),
    "punctuation:no_comma": _kind(check.no_comma),
}


@dataclass(frozen=True)
class Instruction:
    """One instruction of a row, with valid arguments."""

    id: str
    arguments: dict[str, Any]

    def followed(self, text: str) -> bool:
        """A text without a letter or digit follows nothing."""
        return re.search(r"\w", text) is not None and KINDS[self.id].follows(text, **self.arguments)


class Instructions(Verifier):
    """Grades the text after the reasoning against the instructions of IFEval (see instruction_checks.py).

    An answer is `{"instruction_id_list": [...], "kwargs": [{...}, ...]}`, as a mapping or as its JSON text; also
    `{"instruction_id": ..., "kwargs": {...}}` and a list of such mappings.  Null arguments are dropped, all others
    are checked, none is made up.  An instruction that stands there twice with the same arguments counts once.

    Args:
        mode: the score: "strict" is 1 if all instructions are followed; "loose" the same, where each may be followed
            by the text without its first line, last line or asterisks; "fraction" is the share that is followed
            strictly.
        prefilled: the prompt opens the thought; see SpanVerifier.
    """

    name: ClassVar[str] = "instructions"
    _CANARY: ClassVar[dict[str, Any]] = {
        "instruction_id_list": ["language:response_language", "detectable_content:postscript", "startend:quotation"],
        "kwargs": [{"language": "en"}, {"postscript_marker": "P.S.", "language": None}, {}],
    }
    canaries: ClassVar[tuple[Canary, ...]] = (
        (_CANARY, '"The weather in the north is cold and wet today.\n\nP.S. Take a coat with you."', True),
        (_CANARY, '"Das Wetter im Norden ist heute kalt und nass.\n\nP.S. Nimm bitte einen Mantel mit."', False),
        (_CANARY, '"The weather in the north is cold and wet today."', False),
    )

    def __init__(self, mode: str = "strict", prefilled: bool = False) -> None:
        if mode not in get_args(Mode):
            hint = nearest(str(mode), get_args(Mode))
            raise ConfigError(
                f"verifier 'instructions': mode={mode!r} must be one of {', '.join(get_args(Mode))}"
                + (f"; did you mean {hint!r}?" if hint else "")
            )
        self.mode, self.prefilled = mode, prefilled

    def check_answer(self, answer: Any) -> None:
        """Raises ValueError naming the instruction and the argument that cannot be used."""
        read(answer)

    def verify(self, response: str, answer: Any) -> Verdict:
        """Parts: the three scores, and by instruction id whether it is followed strictly."""
        instructions = read(answer)
        text = _INVISIBLE.sub("", after_thought(response, self.prefilled))
        strict = [instruction.followed(text) for instruction in instructions]
        loose = [
            done or any(instruction.followed(variant) for variant in variants(text))
            for done, instruction in zip(strict, instructions, strict=True)
        ]
        parts = {"strict": float(all(strict)), "loose": float(all(loose)), "fraction": sum(strict) / len(strict)}
        by_id: dict[str, list[bool]] = {}
        for done, instruction in zip(strict, instructions, strict=True):
            by_id.setdefault(instruction.id, []).append(done)
        shares = {name: sum(done) / len(done) for name, done in by_id.items()}
        return Verdict(score=parts[self.mode], parts=parts | shares)

    def present(self, given: str) -> str:
        return ("</think>" if self.prefilled else "") + given


def variants(text: str) -> Iterator[str]:
    """The text as loose grading sees it: without its first line, its last or both, and each without asterisks."""
    lines = text.split("\n")
    for kept in (lines, lines[1:], lines[:-1], lines[1:-1]):
        joined = "\n".join(kept).strip()
        yield joined
        yield joined.replace("*", "")


def read(answer: Any) -> list[Instruction]:
    """The instructions of a row, each once, with valid arguments.

    Raises:
        ValueError: naming the instruction and what is wrong with it.
    """
    return _read(answer if isinstance(answer, str) else json.dumps(answer, sort_keys=True))


@lru_cache(maxsize=4096)
def _read(answer: str) -> list[Instruction]:
    try:
        value = json.loads(answer)
    except ValueError as error:
        raise ValueError(f"the answer is no JSON: {error}") from None
    found: list[Instruction] = []
    for entry in value if isinstance(value, list) else [value]:
        for name, kwargs in _pairs(entry):
            instruction = _instruction(name, kwargs)
            if instruction not in found:
                found.append(instruction)
    if not found:
        raise ValueError("the answer has no instruction")
    return found


def _pairs(entry: Any) -> Iterator[tuple[Any, Any]]:
    """Ids and their arguments, of one mapping."""
    named = [name for name in _ID_NAMES if name in entry] if isinstance(entry, dict) else []
    if not named:
        raise ValueError('the answer must be {"instruction_id_list": [...], "kwargs": [...]}')
    ids, kwargs = entry[named[0]], entry.get("kwargs")
    if isinstance(ids, str):
        ids, kwargs = [ids], kwargs if isinstance(kwargs, list) else [kwargs]
    if not isinstance(ids, list):
        raise ValueError(f"{named[0]} is {type(ids).__name__}, not a list")
    kwargs = [None] * len(ids) if kwargs is None else kwargs
    if not isinstance(kwargs, list) or len(kwargs) != len(ids):
        given = len(kwargs) if isinstance(kwargs, list) else type(kwargs).__name__
        raise ValueError(f"there are {len(ids)} instructions, each needs a mapping in kwargs: given {given}")
    yield from zip(ids, kwargs, strict=True)


def _instruction(name: Any, kwargs: Any) -> Instruction:
    if not isinstance(name, str) or name not in KINDS:
        hint = nearest(str(name), KINDS)
        raise ValueError(f"there is no instruction {name!r}" + (f"; did you mean {hint!r}?" if hint else ""))
    if kwargs is not None and not isinstance(kwargs, dict):
        raise ValueError(f"{name}: its kwargs are {type(kwargs).__name__}, not a mapping")
    known = KINDS[name].arguments
    given = {key: value for key, value in (kwargs or {}).items() if value is not None}
    for key in given:
        if key not in known:
            hint = nearest(key, known)
            near = f"; did you mean {hint!r}?" if hint else f"; it has {', '.join(known) or 'none'}"
            raise ValueError(f"{name}: it has no argument {key!r}{near}")
    arguments = {}
    for key, clean in known.items():
        if key not in given:
            raise ValueError(f"{name}: argument {key!r} is missing or null")
        try:
            arguments[key] = clean(given[key])
        except ValueError as error:
            raise ValueError(f"{name}: argument {key!r}: {error}") from None
    _check_together(name, arguments)
    return Instruction(name, arguments)


def _check_together(name: str, arguments: dict[str, Any]) -> None:
    if "nth_paragraph" in arguments and arguments["nth_paragraph"] > arguments["num_paragraphs"]:
        raise ValueError(
            f"{name}: argument 'nth_paragraph': there is no paragraph {arguments['nth_paragraph']} "
            f"among {arguments['num_paragraphs']}"
        )
