"""The 25 verifiable instructions of IFEval (Zhou et al. 2023, arXiv:2311.07911), one function each.

Every function takes the text of a response and the instruction's arguments by their published names, and says
whether the text follows it.  The meaning is the published one, except that nothing passes by default:
  * what is asked for needs content (a section, bullet point, placeholder or postscript of no words is none);
  * keywords and markers are words, never patterns;
  * a text whose language cannot be detected is in no language;
  * exactly one of the options of `constrained_response`, and an answer behind the prompt of `repeat_prompt`;
  * `json_format` is a filled object or array.
"""

import json
import re

from rlvr.verifiers.language import is_in, may_be_english

YES_NO_MAYBE = ("My answer is yes.", "My answer is no.", "My answer is maybe.")

_WORD = re.compile(r"\w")
_BULLET = re.compile(r"^\s*(?:\*(?!\*)|-(?!-)).*\w", re.M)
_HIGHLIGHT = re.compile(r"(?<!\*)\*(?P<once>[^\n*]+)\*(?!\*)|\*\*(?P<twice>[^\n*]+)\*\*")
_PLACEHOLDER = re.compile(r"\[[^\[\]\n]*\w[^\[\]\n]*\]")
_TITLE = re.compile(r"<<(?P<title>[^\n]+?)>>")
_FENCE = re.compile(r"```(?:json)?[ \t]*\n?(?P<inside>.*?)\n?```", re.S | re.I)
_JOINED = re.compile(r"\w+(?:[-'\u2019./&]\w+)*")
_POSTSCRIPTS = {"p.s.": r"p\.\s?s\.", "p.p.s": r"p\.\s?p\.\s?s\.?", "p.p.s.": r"p\.\s?p\.\s?s\.?"}

_STOP = re.compile(r"(?P<mark>[.!?]+)[\"'\u2019\u201d)\]*_]*(?=\s|$)|[\u3002\uff01\uff1f\u0964]")
_BEFORE_NAMES = re.compile(  # abbreviations that end no sentence
    r"mr|mrs|ms|dr|prof|st|vs|e\.g|i\.e|cf|approx|gen|col|lt|sgt|capt|rev|hon|gov|sen|rep|mt"
)
_ABBREVIATIONS = re.compile(  # these end one where no small letter or digit follows
    r"etc|inc|ltd|co|corp|jr|sr|dept|est|no|vol|fig|al|[ap]\.m|"
    r"jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|ave|blvd"
)
_INITIALS = re.compile(r"(?!i$)[a-z](?:\.[a-z])*")


# -- what is counted ---------------------------------------------------------------------------


def words(text: str) -> list[str]:
    """Runs of letters, digits and underscores."""
    return re.findall(r"\w+", text)


def sentences(text: str) -> list[str]:
    """Sentences that contain a letter.

    A sentence ends at `.`, `!` or `?` before white space; a full stop does not after an abbreviation or an initial.
    Line breaks end none.
    """
    found, start = [], 0
    for stop in _STOP.finditer(text):
        mark = stop["mark"] or "!"
        if not mark.strip(".") and _goes_on(text[start : stop.start()], mark, text[stop.end() :]):
            continue
        found.append(text[start : stop.end()].strip())
        start = stop.end()
    found.append(text[start:].strip())
    return [sentence for sentence in found if re.search(r"[^\W\d_]", sentence)]


def _goes_on(before: str, stops: str, after: str) -> bool:
    """Does a sentence go on behind the full stop, or the dots, that part `before` and `after`?"""
    follows = after.lstrip()[:1]
    if len(stops) > 1:
        return follows.islower()
    last = re.search(r"[\w.]*$", before)
    word = last.group().lower() if last else ""
    if _ABBREVIATIONS.fullmatch(word):
        return follows.islower() or follows.isdigit()
    return bool(_INITIALS.fullmatch(word) or _BEFORE_NAMES.fullmatch(word))


def compare(count: int, relation: str, threshold: int) -> bool:
    """`count` is "at least" or "less than" `threshold`."""
    return count >= threshold if relation == "at least" else count < threshold


# -- keywords ------------------------------------------------------------------------------------


def keyword_existence(text: str, keywords: list[str]) -> bool:
    return all(keyword.lower() in text.lower() for keyword in keywords)


def keyword_frequency(text: str, keyword: str, frequency: int, relation: str) -> bool:
    return compare(text.lower().count(keyword.lower()), relation, frequency)


def forbidden_words(text: str, forbidden_words: list[str]) -> bool:
    return not any(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.I) for word in forbidden_words)


def letter_frequency(text: str, letter: str, let_frequency: int, let_relation: str) -> bool:
    return compare(text.lower().count(letter.lower()), let_relation, let_frequency)


# -- language and case -----------------------------------------------------------------------------


def response_language(text: str, language: str) -> bool:
    return is_in(text, language)


def english_capital(text: str) -> bool:
    return text.isupper() and may_be_english(text)


def english_lowercase(text: str) -> bool:
    return text.islower() and may_be_english(text)


def capital_word_frequency(text: str, capital_frequency: int, capital_relation: str) -> bool:
    """A word with hyphens or apostrophes counts once; the `s` of NASA's does not make it a small one."""
    found = [re.sub(r"['\u2019]s$", "", word) for word in _JOINED.findall(text)]
    return compare(sum(word.isupper() for word in found), capital_relation, capital_frequency)


# -- length ----------------------------------------------------------------------------------------


def number_sentences(text: str, num_sentences: int, relation: str) -> bool:
    return compare(len(sentences(text)), relation, num_sentences)


def number_words(text: str, num_words: int, relation: str) -> bool:
    return compare(len(words(text)), relation, num_words)


def number_paragraphs(text: str, num_paragraphs: int) -> bool:
    """Exactly so many, parted by the divider `***`; only the first and the last may be empty, and do not count."""
    parts = [part.strip() for part in text.split("***")]
    return all(parts[1:-1]) and sum(bool(part) for part in parts) == num_paragraphs


def nth_paragraph_first_word(text: str, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    """Exactly so many paragraphs, parted by an empty line, and the first word of one of them."""
    paragraphs = [part for part in text.split("\n\n") if part.strip()]
    if len(paragraphs) != num_paragraphs:
        return False
    return _bare(paragraphs[nth_paragraph - 1].split()[0]) == _bare(first_word)


def _bare(word: str) -> str:
    """A word without opening quotes and what follows punctuation."""
    return re.split(r"[.,?!'\"]", word.lstrip("'\"").lower(), maxsplit=1)[0]


# -- content and format ------------------------------------------------------------------------------


def number_placeholders(text: str, num_placeholders: int) -> bool:
    return len(_PLACEHOLDER.findall(text)) >= num_placeholders


def postscript(text: str, postscript_marker: str) -> bool:
    """The marker somewhere, in any case, and a word behind it."""
    marker = _POSTSCRIPTS.get(postscript_marker.lower(), re.escape(postscript_marker))
    return re.search(rf"(?<!\w){marker}.*\w", text, re.I | re.S) is not None


def number_bullet_lists(text: str, num_bullets: int) -> bool:
    """Exactly so many lines that begin with `*` or `-`."""
    return len(_BULLET.findall(text)) == num_bullets


def constrained_response(text: str) -> bool:
    return sum(option in text for option in YES_NO_MAYBE) == 1


def number_highlighted_sections(text: str, num_highlights: int) -> bool:
    """At least so many of `*these*` and `**these**`."""
    found = (match["once"] or match["twice"] for match in _HIGHLIGHT.finditer(text))
    return sum(bool(inside.strip()) for inside in found) >= num_highlights


def multiple_sections(text: str, section_spliter: str, num_sections: int) -> bool:
    """At least so many of `SPLITER number`, each with words behind it."""
    sections = re.split(rf"{re.escape(section_spliter)}\s?\d+", text)[1:]
    return sum(_WORD.search(section) is not None for section in sections) >= num_sections


def json_format(text: str) -> bool:
    """All of the text, or of its one fenced block, is a JSON object or array with something in it."""
    fenced = _FENCE.fullmatch(text.strip())
    try:
        value = json.loads(fenced["inside"] if fenced else text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict | list) and bool(value)


def title(text: str) -> bool:
    return any(match["title"].strip("<> \t") for match in _TITLE.finditer(text))


# -- combinations, start and end ---------------------------------------------------------------------


def two_responses(text: str) -> bool:
    """Two different ones, parted by `******`."""
    parts = [part.strip() for part in text.split("******")]
    given = [part for part in parts if part]
    return all(parts[1:-1]) and len(given) == 2 and given[0] != given[1]


def repeat_prompt(text: str, prompt_to_repeat: str) -> bool:
    """The prompt, word for word, and then an answer."""
    text, prompt = text.strip().lower(), prompt_to_repeat.strip().lower()
    return text.startswith(prompt) and _WORD.search(text[len(prompt) :]) is not None


def end_checker(text: str, end_phrase: str) -> bool:
    """The last words; quotation marks around the whole do not count."""
    text, phrase = text.strip().lower(), end_phrase.strip().lower()
    return text.endswith(phrase) or text.strip('"').endswith(phrase)


def quotation(text: str) -> bool:
    text = text.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'


def no_comma(text: str) -> bool:
    return "," not in text
