import inspect
from typing import Any

import pytest

from rlvr.keys import ConfigError
from rlvr.verifiers import build, judge, self_check
from rlvr.verifiers.instruction_checks import sentences
from rlvr.verifiers.instructions import KINDS, read

STRICT = build("instructions")
LONG = "The sun was shining on the sea, and the walrus took a walk along the briny beach."
FRENCH = "Bonjour tout le monde, je suis tres heureux de vous rencontrer aujourd'hui."
GERMAN = "Guten Morgen, ich freue mich sehr, Sie heute hier begruessen zu duerfen."

TABLE: list[tuple[str, dict[str, Any], list[str], list[str]]] = [
    (
        "keywords:existence",
        {"keywords": ["Rome", "C++"]},
        ["In rome they write C++.", "c++ and ROME"],
        ["In Rome they write C.", "Cxx in Rome", ""],
    ),
    (
        "keywords:frequency",
        {"keyword": "war", "frequency": 2, "relation": "at least"},
        ["War is war.", "wars and warm wars"],
        ["War is hell.", "peace"],
    ),
    (
        "keywords:frequency",
        {"keyword": "war", "frequency": 2, "relation": "less than"},
        ["War is hell.", "peace"],
        ["War is war.", "", "..."],
    ),
    (
        "keywords:forbidden_words",
        {"forbidden_words": ["rock", "c++"]},
        ["A rocket in C", "music"],
        ["ROCK music", "it rocks; no, rock.", "in C++, of course"],
    ),
    (
        "keywords:letter_frequency",
        {"letter": "T", "let_frequency": 2, "let_relation": "at least"},
        ["That", "a tent"],
        ["Two", "none"],
    ),
    (
        "keywords:letter_frequency",
        {"letter": "#", "let_frequency": 2, "let_relation": "less than"},
        ["#one", "no hash"],
        ["#one #two", "###x"],
    ),
    ("language:response_language", {"language": "fr"}, [FRENCH, FRENCH.upper()], [LONG, GERMAN, "12345", "!?"]),
    (
        "language:response_language",
        {"language": "zh"},
        [
            "\u4eca\u5929\u5929\u6c14\u5f88\u597d\uff0c\u6211\u4eec\u53bb\u516c\u56ed\u6563\u6b65\u5427\u3002",
            "\u4f60\u597d",
        ],
        [LONG, FRENCH],
    ),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 3, "relation": "at least"},
        ["One is here. Two is here! Is three?", "i came. i saw. i won."],
        ["Dr. Smith met Mr. J. Jones. They left.", "1. 2. 3. 4.", "No end"],
    ),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 2, "relation": "less than"},
        ["The U.S. Army came, e.g. by sea.", "Version 2.5 is out"],
        ["It came. It went.", "What? Yes!"],
    ),
    (
        "length_constraints:number_paragraphs",
        {"num_paragraphs": 2},
        ["One.\n***\nTwo.", "***\nOne *** two\n***"],
        ["One.\n\nTwo.", "One\n***\n***\nTwo", "One *** two *** three", "***"],
    ),
    (
        "length_constraints:number_words",
        {"num_words": 4, "relation": "at least"},
        ["this is four words", "don't count me"],
        ["just three words", "a-b \u200b \u200b \u200b c"],
    ),
    (
        "length_constraints:number_words",
        {"num_words": 4.0, "relation": "less than"},
        ["just three words", "one"],
        ["this is four words", ""],
    ),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Then"},
        ["First.\n\nThen it went.", "First.\n\n\n\n'then, it went."],
        ["Then.\n\nFirst.", "First.\n\nThen.\n\nLast.", "First.\n\nThence it went.", "First. Then"],
    ),
    (
        "detectable_content:number_placeholders",
        {"num_placeholders": 2},
        ["Dear [name], of [address]", "[a] [b] [c]"],
        ["Dear [name]", "[] [ ] [\n]", "(name) (address)"],
    ),
    (
        "detectable_content:postscript",
        {"postscript_marker": "P.S."},
        ["Bye.\n\nP.S. Write soon", "Bye. p. s. write"],
        ["Bye.", "Bye.\nP.S.", "PS write soon"],
    ),
    (
        "detectable_content:postscript",
        {"postscript_marker": "P.P.S"},
        ["Bye.\nP.P.S Write soon", "Bye. P.P.S. write"],
        ["Bye.\nP.S. Write", "Bye.\nP.P.S."],
    ),
    (
        "detectable_format:number_bullet_lists",
        {"num_bullets": 2},
        ["Here:\n* one\n* two", "  - one\n- two\n---\n**bold**"],
        ["* one", "* one\n* two\n- three", "*\n*", "1. one\n2. two"],
    ),
    (
        "detectable_format:constrained_response",
        {},
        ["My answer is yes.", "Well. My answer is maybe."],
        ["yes", "My answer is yes", "My answer is yes. My answer is no. My answer is maybe."],
    ),
    (
        "detectable_format:number_highlighted_sections",
        {"num_highlights": 2},
        ["*one* and *two*", "**one** and *two*"],
        ["*one* and two", "** ** * *", "**one**", "*\n*\n*\n*"],
    ),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "SECTION", "num_sections": 2},
        ["SECTION 1\nHello.\nSECTION 2\nBye.", "SECTION 1: a SECTION 2: b SECTION 3: c"],
        ["SECTION 1\nHello.", "SECTION 1 SECTION 2", "Section 1\na\nSection 2\nb"],
    ),
    (
        "detectable_format:json_format",
        {},
        ['{"a": [1, 2]}', '```json\n{"a": 1}\n```', "[1]"],
        ["{a: 1}", 'Here it is: {"a": 1}', "{}", "[" * 100_000, "5"],
    ),
    (
        "detectable_format:title",
        {},
        ["<<A poem>>\nRoses", "text <<x>>"],
        ["<A poem>", "<<>>", "<< >> roses", "<<a\nb>>"],
    ),
    (
        "combination:two_responses",
        {},
        ["Yes.\n******\nNo.", "******a******b"],
        ["Yes.", "Yes.\n******\nYes.", "a ****** b ****** c", "a ****** ****** b", "******"],
    ),
    (
        "combination:repeat_prompt",
        {"prompt_to_repeat": "Say (hi)."},
        ["Say (hi).\nHi!", "say (HI). Hello"],
        ["", "Say (hi).", "Sure! Say (hi). Hi!", "Hi!"],
    ),
    (
        "startend:end_checker",
        {"end_phrase": "Any other questions?"},
        ["Yes. Any other questions?", '"ok. any other questions?"  '],
        ["Any other questions? No.", "Any other question", ""],
    ),
    ("startend:quotation", {}, ['"All of it."', ' "a" '], ['"', 'He said "yes".', "'a'", '"start']),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": "at least"},
        ["NASA's and COVID-19", "I AM here"],
        ["NASA", "Nasa And Esa", "12 34"],
    ),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": "less than"},
        ["Only NASA", "nothing"],
        ["NASA and ESA", "A B C"],
    ),
    (
        "change_case:english_capital",
        {},
        [LONG.upper(), "HELLO WORLD"],
        ["This Is Title Case", LONG, FRENCH.upper(), "123"],
    ),
    ("change_case:english_lowercase", {}, [LONG.lower(), "hello world"], [LONG, FRENCH.lower(), "A", "123"]),
    ("punctuation:no_comma", {}, ["One and two.", "1000"], ["One, two.", "1,000", ""]),
]


def score(response: str, ids: list[str], kwargs: list[dict[str, Any]], mode: str = "strict") -> float | None:
    return judge(build("instructions", {"mode": mode}), response, {"instruction_id_list": ids, "kwargs": kwargs}).score


@pytest.mark.parametrize(
    ("name", "kwargs", "right", "wrong"), TABLE, ids=[f"{row[0]}-{i}" for i, row in enumerate(TABLE)]
)
def test_each_instruction(name: str, kwargs: dict[str, Any], right: list[str], wrong: list[str]) -> None:
    assert min(len(right), len(wrong)) >= 2
    assert [text for text in right if score(text, [name], [kwargs]) != 1] == []
    assert [text for text in wrong if score(text, [name], [kwargs]) != 0] == []


def test_all_25_are_there_and_tested() -> None:
    assert len(KINDS) == 25
    assert {name for name, *_ in TABLE} == set(KINDS)
    for name, kind in KINDS.items():
        assert list(inspect.signature(kind.follows).parameters)[1:] == list(kind.arguments), name


@pytest.mark.parametrize("name", KINDS)
def test_no_instruction_is_followed_by_nothing(name: str) -> None:
    kwargs = next(kwargs for other, kwargs, *_ in TABLE if other == name)
    for nothing in ("", " \n", "\u200b", "***", "<think>My answer is yes."):
        assert score(nothing, [name], [kwargs], "loose") == 0


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"instruction_id_list": ["keywords:must_include"], "kwargs": [{}]}, "no instruction 'keywords:must_include'"),
        ({"instruction_id_list": ["keywords:existance"], "kwargs": [{}]}, "did you mean 'keywords:existence'"),
        (
            {
                "instruction_id_list": ["length_constraints:nth_paragraph_first_word"],
                "kwargs": [{"num_paragraphs": 2, "nth_paragraph": 1, "keyword": "x"}],
            },
            "nth_paragraph_first_word: it has no argument 'keyword'; it has num_paragraphs, nth_paragraph, first_word",
        ),
        (
            {"instruction_id_list": ["startend:end_checker"], "kwargs": [{"end_phrases": "x"}]},
            "did you mean 'end_phrase'",
        ),
        (
            {"instruction_id_list": ["startend:end_checker"], "kwargs": [{"end_phrase": None}]},
            "'end_phrase' is missing or null",
        ),
        (
            {
                "instruction_id_list": ["length_constraints:nth_paragraph_first_word"],
                "kwargs": [{"num_paragraphs": 2, "nth_paragraph": 3, "first_word": "x"}],
            },
            "no paragraph 3 among 2",
        ),
        (
            {
                "instruction_id_list": ["length_constraints:number_words"],
                "kwargs": [{"num_words": 3, "relation": "most"}],
            },
            "number_words: argument 'relation': 'most' is neither",
        ),
        (
            {
                "instruction_id_list": ["length_constraints:number_words"],
                "kwargs": [{"num_words": 2.5, "relation": "at least"}],
            },
            "'num_words': 2.5 is not a whole number",
        ),
        (
            {"instruction_id_list": ["detectable_format:number_bullet_lists"], "kwargs": [{"num_bullets": 0}]},
            "at least 1",
        ),
        ({"instruction_id_list": ["keywords:existence"], "kwargs": [{"keywords": "word"}]}, "not a list of words"),
        ({"instruction_id_list": ["keywords:existence"], "kwargs": [{"keywords": []}]}, "not a list of words"),
        (
            {
                "instruction_id_list": ["keywords:letter_frequency"],
                "kwargs": [{"letter": "ab", "let_frequency": 2, "let_relation": "at least"}],
            },
            "not one letter",
        ),
        (
            {"instruction_id_list": ["language:response_language"], "kwargs": [{"language": "xx"}]},
            "'xx' is not the code",
        ),
        ({"instruction_id_list": ["punctuation:no_comma"], "kwargs": []}, "1 instructions, each needs a mapping"),
        ({"instruction_id_list": ["punctuation:no_comma"], "kwargs": [["x"]]}, "kwargs are list"),
        ({"instruction_id_list": [], "kwargs": []}, "no instruction"),
        ({"ids": ["punctuation:no_comma"]}, "the answer must be"),
        ("not JSON", "no JSON"),
        (None, "the answer must be"),
    ],
)
def test_rows_that_cannot_be_graded(answer: Any, why: str) -> None:
    with pytest.raises(ValueError) as told:
        STRICT.check_answer(answer)
    assert why in str(told.value)
    verdict = judge(STRICT, "My answer is yes.", answer)
    assert verdict.score is None


def test_layouts_of_an_answer() -> None:
    one = read({"instruction_id_list": ["startend:quotation"], "kwargs": [{}]})
    null = {"num_words": None, "keywords": None}
    assert read({"instruction_id_list": ["startend:quotation"], "kwargs": [null]}) == one  # as parquet stores it
    assert read({"instruction_id_list": ["startend:quotation"], "kwargs": [None]}) == one
    assert read({"instruction_id": "startend:quotation"}) == one
    assert read([{"instruction_id": ["startend:quotation"], "kwargs": [{}]}]) == one
    assert read('[{"id": "startend:quotation", "kwargs": {}}]') == one


def test_an_instruction_may_stand_there_twice() -> None:
    ids = ["keywords:frequency"] * 3
    kwargs = [{"keyword": word, "frequency": 1, "relation": "at least"} for word in ("war", "peace", "war")]
    answer = {"instruction_id_list": ids, "kwargs": kwargs}
    verdict = judge(build("instructions", {"mode": "fraction"}), "only war", answer)
    assert verdict.score == 0.5  # the same twice counts once
    assert verdict.parts == {"strict": 0.0, "loose": 0.0, "fraction": 0.5, "keywords:frequency": 0.5}
    assert judge(STRICT, "war and peace", answer).score == 1


def test_the_three_scores() -> None:
    ids, kwargs = ["startend:end_checker", "punctuation:no_comma"], [{"end_phrase": "The end"}, {}]
    for text, strict, loose, fraction in [
        ("Once upon a time.\nThe end", 1, 1, 1),
        ("Sure, here it is:\nOnce upon a time. The end", 0, 1, 0.5),
        ("Once upon a time. **The end**", 0, 1, 0.5),
        ("Once upon a time. The end\nAnything else?", 0, 1, 0.5),
        ("a, b, c", 0, 0, 0),
    ]:
        assert score(text, ids, kwargs, "strict") == strict, text
        assert score(text, ids, kwargs, "loose") == loose, text
        assert score(text, ids, kwargs, "fraction") == fraction, text


def test_the_text_after_the_thought_is_judged() -> None:
    ids, kwargs = ["punctuation:no_comma"], [{}]
    assert score("<think>one, two, three</think>One and two.", ids, kwargs) == 1
    assert score("<think>one</think>One, two.", ids, kwargs) == 0
    assert score("<think>one and two", ids, kwargs) == 0
    prefilled = build("instructions", {"prefilled": True})
    assert judge(prefilled, "no commas yet", {"instruction_id_list": ids, "kwargs": kwargs}).score == 0


def test_sentences() -> None:
    text = 'He said "no." Then she left... and Prof. A. B. Stone, of Acme Inc. in the U.S. Senate, came at 5 p.m. '
    assert len(sentences(text + "So did I. OK?")) == 4
    assert sentences("\u4eca\u5929\u5f88\u597d\u3002\u660e\u5929\u89c1\uff01") == [
        "\u4eca\u5929\u5f88\u597d\u3002",
        "\u660e\u5929\u89c1\uff01",
    ]


def test_options_and_self_check() -> None:
    self_check("instructions", {"mode": "loose", "prefilled": True})
    with pytest.raises(ConfigError, match="did you mean 'fraction'"):
        build("instructions", {"mode": "fractional"})
