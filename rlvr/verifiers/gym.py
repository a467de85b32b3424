"""Puzzles of reasoning-gym, scored by the scorer of their own task."""

import functools
import json
from typing import Any, ClassVar

from rlvr.keys import ConfigError, nearest
from rlvr.records import Verdict
from rlvr.verifiers.base import Canary, Verifier
from rlvr.verifiers.extract import after_thought, tagged
from rlvr.verifiers.gym_guard import admitted

try:
    from reasoning_gym.factory import DATASETS
except ImportError as error:
    raise ConfigError("verifier 'gym' needs reasoning-gym; install it with: pip install 'rlvr[gym]'") from error

JUNK = ("junk", "{}", "[[0]]")  # no answers, of several types
CHEAP = ("junk", "0", "1", "None")  # what can be said without looking at the question
_CANARY = {"task": "basic_arithmetic", "entry": {"question": "2 + 3 =", "answer": "5", "metadata": {}}}


class Gym(Verifier):
    """The task's own score of the text in the last `<answer>...</answer>`, else of all text after the reasoning.

    An answer is `{"task": name, "entry": the entry of the data set}`, with "config" beside them where the task's
    scorer depends on its configuration.

    Scorers are third-party code, and three rules keep their faults out of the rewards:
      * where a scorer raises, the task's own answer is scored as a control.  If that scores 1, the scorer works and the
        response is to blame: wrong.  If not, the response could not be judged.
      * a part of the score that a cheap answer earns too, such as "0", is not earned: 0.
      * what `gym_guard` does not admit is wrong, and no scorer sees it.

    Args:
        floor: scores up to this are 0; many tasks pay a little for taking part, which is not a right answer.
        prefilled: the prompt opens the thought; see SpanVerifier.
    """

    name: ClassVar[str] = "gym"
    canaries: ClassVar[tuple[Canary, ...]] = (
        (_CANARY, "<answer>5</answer>", True),
        (_CANARY, "<answer>6</answer>", False),
    )

    def __init__(self, floor: float = 0.05, prefilled: bool = False) -> None:
        if not 0 <= floor <= 1:
            raise ConfigError(f"verifier 'gym': floor={floor} must be in [0, 1]")
        self.floor, self.prefilled = floor, prefilled

    def check_answer(self, answer: Any) -> None:
        """The task's own answer must score 1, an empty one 0, and junk less than 1."""
        if not isinstance(answer, dict) or not {"task", "entry"} <= answer.keys():
            raise ValueError('the answer must be {"task": name, "entry": entry of the data set}')
        if answer["task"] not in DATASETS:
            hint = nearest(str(answer["task"]), DATASETS)
            near = f"; did you mean {hint!r}?" if hint else ""
            raise ValueError(f"no task {answer['task']!r} in reasoning-gym{near}")
        try:
            gold = answer["entry"]["answer"]  # None where a task has many right answers and names none
            own, nothing = self._score(gold, answer) if gold is not None else 1.0, self._score("", answer)
            paid = [junk for junk in JUNK if junk != gold and self._judged(junk, answer)[0] == 1]
        except Exception as error:
            raise ValueError(
                f"the scorer of {answer['task']} cannot use this entry: {type(error).__name__}: {error}"
            ) from error
        if own < 1:
            raise ValueError(f"the scorer of {answer['task']} gives {own} to the task's own answer")
        if nothing > 0:
            raise ValueError(f"the scorer of {answer['task']} gives {nothing} to an empty answer")
        if paid:
            raise ValueError(f"the scorer of {answer['task']} pays for {paid[0]!r}")

    def verify(self, response: str, answer: Any) -> Verdict:
        text = after_thought(response, self.prefilled)
        inner = tagged(text)
        given = text.strip() if inner is None else inner
        score, readable = self._judged(given, answer) if given else (0.0, True)
        parts = {"answered": float(given != ""), "tagged": float(inner is not None), "unreadable": float(not readable)}
        return Verdict(score=score, parts=parts, answer=" ".join(given.split()))

    def present(self, given: str) -> str:
        return ("</think>" if self.prefilled else "") + given

    def _judged(self, given: str, answer: dict[str, Any]) -> tuple[float, bool]:
        """The score of an answer, and whether the scorer could read it.  Raises what a broken scorer raises."""
        if not admitted(answer["task"], given, answer["entry"].get("answer")):
            return 0.0, True
        try:
            score = self._score(given, answer)
        except Exception:
            if not self._works(answer):
                raise
            return 0.0, False
        return (score if score == 1 or score > self._cheaply(answer) else 0.0), True

    def _works(self, answer: dict[str, Any]) -> bool:
        """The control: does the scorer know the task's own answer, or at least that nothing is none?"""
        gold = answer["entry"].get("answer")
        return self._score("" if gold is None else gold, answer) == float(gold is not None)

    def _cheaply(self, answer: dict[str, Any]) -> float:
        """The most that an answer pays which is the same for every question."""
        gold = answer["entry"].get("answer")
        others = [given for given in CHEAP if given != gold and admitted(answer["task"], given, gold)]
        return max((self._quietly(given, answer) for given in others), default=0.0)

    def _quietly(self, given: str, answer: dict[str, Any]) -> float:
        try:
            score = self._score(given, answer)
        except Exception:
            return 0.0  # it could not be read
        return score if score < 1 else 0.0  # another way to write the right answer

    def _score(self, given: str | None, answer: dict[str, Any]) -> float:
        scorer = _scorer(answer["task"], json.dumps(answer.get("config", {}), sort_keys=True))
        score = float(scorer.score_answer(given, answer["entry"]))
        return score if score > self.floor else 0.0


@functools.lru_cache(maxsize=256)
def _scorer(task: str, config: str) -> Any:
    dataset, config_class = DATASETS[task]
    return dataset(config=config_class(**json.loads(config)))
