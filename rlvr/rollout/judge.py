"""Grading while generation goes on: a pool of verifier processes with the data's verifiers set up."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rlvr.data.sources import verifier_options
from rlvr.data.template import opened_thought
from rlvr.records import Completion, Prompt, Verdict
from rlvr.schema.data import DataConfig, VerifyConfig
from rlvr.verifiers import build
from rlvr.verifiers.base import Verifier
from rlvr.verifiers.pool import Job, VerifierPool


@functools.cache
def _verifier(name: str, options: str) -> Verifier:
    return build(name, json.loads(options))


def check_answer(name: str, options: dict[str, Any], answer: Any) -> None:
    """Let a verifier look at a row's own answer.

    Raises:
        ValueError: if it could not judge by it.
    """
    _verifier(name, json.dumps(options, sort_keys=True)).check_answer(answer)


class Judge:
    """Grades completions of prompts, each by the verifier of its row."""

    def __init__(self, data: DataConfig, verify: VerifyConfig, prompts: Iterable[Prompt]) -> None:
        """Start the processes and set up every verifier that `prompts` name.

        Raises:
            RuntimeError: if one cannot be built, or grades its own canaries wrongly.
        """
        self.data = data
        self.pool = VerifierPool(verify.workers, verify.timeout)
        for name, options in dict.fromkeys((p.verifier, self._options(p)) for p in prompts):
            self.pool.warm(name, json.loads(options))

    def _options(self, prompt: Prompt) -> str:
        return json.dumps(verifier_options(self.data, prompt), sort_keys=True)

    def submit(self, prompt: Prompt, completion: Completion) -> int:
        """Start grading; returns a ticket at once.

        A chat template may open the thought in the prompt: the verifier must see that it is open.
        """
        job = Job(
            verifier=prompt.verifier,
            options=verifier_options(self.data, prompt),
            response=opened_thought(prompt.text) + completion.text,
            answer=prompt.answer,
        )
        return self.pool.submit(job)

    def submitter(self, prompts: Sequence[Prompt], tickets: dict[int, int]) -> Callable[[int, Completion], None]:
        """A callback for the sampler: grades completion `index` of `prompts[index]` and notes its ticket."""

        def on_done(index: int, completion: Completion) -> None:
            tickets[index] = self.submit(prompts[index], completion)

        return on_done

    def gather(self, tickets: Sequence[int]) -> list[Verdict]:
        """The verdicts, in the order of the tickets; waits for them."""
        return self.pool.gather(list(tickets))

    def close(self) -> None:
        """End the processes."""
        self.pool.close()
