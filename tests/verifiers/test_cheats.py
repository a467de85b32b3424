from pathlib import Path

import pytest

from rlvr.keys import ConfigError
from rlvr.verifiers import VERIFIERS, build
from rlvr.verifiers.cheats import NO_ANSWER, NOTHING, cheats, subject
from rlvr.verifiers.pool import Job, VerifierPool


@pytest.mark.parametrize("name", VERIFIERS)
def test_no_cheat_pays(name: str) -> None:
    on = subject(name)
    verifier = build(on.verifier, on.options)
    tried = dict(cheats(on))
    assert tried.items() >= NOTHING.items()
    responses = {"the right answer": verifier.present(on.given), **tried}
    with VerifierPool(workers=1, timeout=2.0) as pool:
        jobs = [Job(verifier=name, response=r, answer=on.answer, options=on.options) for r in responses.values()]
        verdicts = dict(zip(responses, pool.gather([pool.submit(job) for job in jobs]), strict=True))
    assert verdicts.pop("the right answer").score == 1
    assert {label: verdict for label, verdict in verdicts.items() if verdict.score != 0} == {}


@pytest.mark.parametrize("name", ["math", "number", "choice"])
@pytest.mark.parametrize("extract", ["boxed", "hash", "answer", "whole"])
def test_no_cheat_pays_where_the_thought_is_prefilled(name: str, extract: str) -> None:
    on = subject(name, {"prefilled": True, "extract": extract})
    verifier = build(name, on.options)
    assert verifier.verify(verifier.present(on.given), on.answer).score == 1
    assert [label for label, response in cheats(on) if verifier.verify(response, on.answer).score != 0] == []


def test_the_list_has_every_kind() -> None:
    assert {"empty", "invisible characters", "empty answer tag", "empty thought and a letter"} <= NOTHING.keys()
    assert {"question copied", "wrapped junk", "letters", "a box for each letter"} <= NO_ANSWER.keys()
    on = subject("number")
    labels = [label for label, _ in cheats(on)]
    assert len(labels) == len(set(labels)) >= 60
    assert "right or another" in labels


def test_a_verifier_that_pays_is_found(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from rlvr.verifiers.exact import Exact\n"
        "class Kind(Exact):\n"
        "    def grade(self, span, how, answer): return answer in span\n"
    )
    on = subject(f"{tmp_path}/mine.py:Kind")
    verifier = build(on.verifier)
    paid = {label for label, response in cheats(on) if verifier.verify(response, on.answer).score}
    assert paid == {
        "right or another",
        "another or right",
        "right and many more",
        "right, then taken back",
        "not right",
    }


def test_a_function_has_nothing_to_be_tested_with(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def f(response, answer): return 1")
    with pytest.raises(ConfigError, match="canaries"):
        subject(f"{tmp_path}/mine.py:f")
