"""What a plan knows of algorithms without torch is what they say of themselves; batches are those of the packing."""

from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rlvr import manual
from rlvr.algorithms import ALGORITHMS
from rlvr.batch import Batch
from rlvr.config import compose
from rlvr.engine.packing import Packed, micro_batch_rows, piece
from rlvr.plan.work import Lengths, Work, demands
from rlvr.records import Completion, Prompt, Verdict


@cache
def composed(name: str) -> Any:
    return compose([f"algorithm={name}"]).algorithm


@pytest.mark.parametrize("kl", [False, True])
@pytest.mark.parametrize("name", manual.choices("algorithm"))
def test_demands_are_those_of_the_algorithm(name: str, kl: bool) -> None:
    config: Any = composed(name)
    if kl and hasattr(config, "kl_coef"):
        config = replace(config, kl_coef=0.5)
    algorithm: Any = ALGORITHMS[config.name](config)
    told = demands(config)
    assert told.draws == {draw.source: draw.count for draw in algorithm.draws}
    assert told.old == ("old_logprobs_BT" in algorithm.needs)
    assert told.old_in_signal == ("old_logprobs_BT" in algorithm.signal_needs)
    assert told.reference == ("ref_logprobs_BT" in algorithm.needs)
    assert told.critic == ("critic" in algorithm.models)
    assert told.entropy_learns == algorithm.entropy_learns
    surveyed = {algorithm.survey.source} if algorithm.survey else set()
    assert (told.reference or "reference" in told.draws) == ("reference" in algorithm.models | surveyed)


@pytest.mark.parametrize("share", [True, False])
def test_micro_batches_are_those_that_the_packing_makes(share: bool) -> None:
    config = compose(
        [f"hardware.share_prompts={str(share).lower()}", "hardware.tokens_per_micro_batch=120", "rollout.prompts=8"]
    )
    prompts = [Prompt(id=str(p), source="s", text="", tokens=(p + 1,) * 7, answer="", verifier="x") for p in range(8)]
    rows = [prompt for prompt in prompts for _ in range(16)]
    done = [Completion(tokens=(3,) * 5, logprobs=(0.0,) * 5, text="", truncated=False, source="policy")] * len(rows)
    batch = Batch.of(rows, done, [Verdict(score=1.0)] * len(rows), group=16, limit=8)
    world: Any = SimpleNamespace(max=lambda own: own)
    cuts = micro_batch_rows(batch, 1, 120, world, share)
    packed = [Packed.of(piece(batch, cut), torch.device("cpu"), share) for cut in cuts]
    work, lengths = Work.of(config, 1), Lengths(prompt=7, completion=5, longest=5)
    assert len(cuts) == pytest.approx(work.micro_batches(lengths), rel=0.1)
    micro = work.micro(lengths)
    assert sum(len(p.ids_N) for p in packed) / len(cuts) == pytest.approx(micro.tokens, rel=0.1)
    assert sum(p.pad_nL.numel() for p in packed) / len(cuts) == pytest.approx(micro.padded, rel=0.1)
    assert sum(len(p.target_M) for p in packed) / len(cuts) == pytest.approx(micro.predicted, rel=0.1)


def test_passes_before_the_update_follow_the_updater() -> None:
    def passes(*overrides: str) -> tuple[int, float]:
        work = Work.of(compose(list(overrides)), 1)
        return work.old_passes, work.reference_passes

    assert passes() == (0, 0.1)
    assert passes("log.kl_every=0") == (0, 0.0)
    assert passes("algorithm.minibatches=2", "algorithm.kl_coef=0.1") == (1, 1.0)
    assert passes("algorithm=ppo", "algorithm.kl_coef=0.1", "rollout.prompts=16")[0] == 1
    assert passes("algorithm=astar_po") == (0, 1.0)


def test_a_plan_is_of_the_stage_that_asks_for_most() -> None:
    work = Work.of(compose(["experiment=prorl_1_5b"]), 8)
    assert work.config.rollout.max_tokens * work.config.algorithm.group == 32 * 8096
