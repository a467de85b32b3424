"""Which language a text is in, by its letter sequences (the `langdetect` package); ISO 639-1 codes."""

import re
from functools import cache

from langdetect import LangDetectException
from langdetect.detector_factory import PROFILES_DIRECTORY, DetectorFactory

from rlvr.keys import nearest

SHORT = 20  # words; with fewer the runner-up may be the truth
TINY = 5  # words; with fewer, languages that share an alphabet cannot be told apart

_SEVERAL = {"zh": ("zh-cn", "zh-tw")}  # the package tells the two scripts apart, data sets do not
_NOT_LATIN = re.compile(r"[^\W\d_a-zA-Z\u00c0-\u024f\u1e00-\u1eff]")


def check_language(code: object) -> str:
    """The code in lower case.

    Raises:
        ValueError: it is not the code of a language that can be detected.
    """
    known = sorted({*_factory().get_lang_list(), *_SEVERAL})
    if not isinstance(code, str) or code.lower() not in known:
        hint = nearest(str(code).lower(), known)
        near = f"; did you mean {hint!r}?" if hint else ""
        raise ValueError(f"{code!r} is not the code of a language that can be detected{near} ({', '.join(known)})")
    return code.lower()


def is_in(text: str, code: str) -> bool:
    """Is `text` in the language `code`?  False where it has no letters to judge by."""
    candidates = _candidates(text)
    wanted = _SEVERAL.get(code, (code,))
    return any(language in wanted for language in (candidates if _words(text) < SHORT else candidates[:1]))


def may_be_english(text: str) -> bool:
    """Is nothing said against English?  A few words in Latin letters pass, as they cannot be told apart."""
    if _words(text) >= TINY:
        return is_in(text, "en")
    return re.search(r"[a-zA-Z]", text) is not None and not _NOT_LATIN.search(text)


def _candidates(text: str) -> list[str]:
    """Language codes, the likeliest first.  Text in capitals is lowered: all profiles are of ordinary text."""
    detector = _factory().create()
    detector.append(text.lower() if text.isupper() else text)
    try:
        return [candidate.lang for candidate in detector.get_probabilities()]
    except LangDetectException:  # raised where there is no letter sequence that any language has
        return []


def _words(text: str) -> int:
    return len(re.findall(r"\w+", text))


@cache
def _factory() -> DetectorFactory:
    factory = DetectorFactory()
    factory.set_seed(0)  # it samples letter sequences; the same text must get the same answer every time
    factory.load_profile(PROFILES_DIRECTORY)
    return factory
