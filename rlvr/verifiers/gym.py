"""Puzzles of reasoning-gym, scored by the scorer of their own task."""

import json
import re
from functools import lru_cache
from typing import Any, ClassVar

from rlvr.keys import ConfigError, nearest
from rlvr.records import Verdict
from rlvr.verifiers.base import Canary, Verifier
from rlvr.verifiers.extract import after_thought

try:
    from reasoning_gym.factory import DATASETS
except ImportError as error:
    raise ConfigError("verifier 'gym' needs reasoning-gym; install it with: pip install 'rlvr[gym]'") from error

_TAG = re.compile(r"<answer>(.*?)</answer>", re.S)
_CANARY = {"task": "basic_arithmetic", "entry": {"question": "2 + 3 =", "answer": "5", "metadata": {}}}


class Gym(Verifier):
    """The task's own score of the text in the last `<answer>...</answer>`, else of all text after the reasoning.

    An answer is `{"task": name, "entry": the entry of the data set}`, with "config" beside them where the task's
    scorer depends on its configuration.

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
        """The task's own answer must score 1, and an empty one 0, without an exception."""
        if not isinstance(answer, dict) or not {"task", "entry"} <= answer.keys():
            raise ValueError('the answer must be {"task": name, "entry": entry of the data set}')
        if answer["task"] not in DATASETS:
            hint = nearest(str(answer["task"]), DATASETS)
            near = f"; did you mean {hint!r}?" if hint else ""
            raise ValueError(f"no task {answer['task']!r} in reasoning-gym{near}")
        try:
            gold = answer["entry"]["answer"]  # None where a task has many right answers and names none
            own, nothing = self._score(gold, answer) if gold is not None else 1.0, self._score("", answer)
        except Exception as error:
            raise ValueError(
                f"the scorer of {answer['task']} cannot use this entry: {type(error).__name__}: {error}"
            ) from error
        if own < 1:
            raise ValueError(f"the scorer of {answer['task']} gives {own} to the task's own answer")
        if nothing > 0:
            raise ValueError(f"the scorer of {answer['task']} gives {nothing} to an empty answer")

    def verify(self, response: str, answer: Any) -> Verdict:
        text = after_thought(response, self.prefilled)
        tagged = _TAG.findall(text)
        given = (tagged[-1] if tagged else text).strip()
        parts = {"answered": float(given != ""), "tagged": float(bool(tagged))}
        return Verdict(score=self._score(given, answer) if given else 0.0, parts=parts)

    def present(self, given: str) -> str:
        return ("</think>" if self.prefilled else "") + given

    def _score(self, given: str | None, answer: dict[str, Any]) -> float:
        scorer = _scorer(answer["task"], json.dumps(answer.get("config", {}), sort_keys=True))
        score = float(scorer.score_answer(given, answer["entry"]))
        return score if score > self.floor else 0.0


@lru_cache(maxsize=256)
def _scorer(task: str, config: str) -> Any:
    dataset, config_class = DATASETS[task]
    return dataset(config=config_class(**json.loads(config)))
