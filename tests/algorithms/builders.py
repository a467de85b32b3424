"""Hand-made configs, batches and forwards in float64 for tests of algorithms."""

from collections.abc import Sequence
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rlvr.algorithms import ALGORITHMS
from rlvr.algorithms.base import Algorithm, Forward
from rlvr.batch import Batch, padded
from rlvr.schema import ALGORITHM_SCHEMAS

Ragged = Sequence[Sequence[float]]

KEYS: dict[str, Any] = dict(
    group=2,
    minibatches=1,
    epochs=1,
    average="sequence",
    wrong_reward=0.0,
    truncated="keep",
    mismatch="none",
    mismatch_low=0.5,
    mismatch_high=2.0,
    clip_low=0.2,
    clip_high=0.2,
    dual_clip=None,
    scale_advantages="group",
    kl_coef=0.0,
    kl_estimator="k3",
    kl_in="loss",
    overlong_buffer=0,
    overlong_factor=1.0,
    quantile=0.4,
    reset_every=0,
    reset_until=None,
    reset_optimizer=False,
    unfinished_penalty=0.0,
    length_penalty=0.0,
    length_penalty_on=2,
    length_penalty_off=3,
    anchor_tries=4,
    alpha=0.9375,
    anchor="correct",
    gate="armor",
    ratio="mixture",
    mix_on="all",
    gamma=1.0,
    lam=0.95,
    value_clip=0.2,
    eta=1.0,
    survey_count=8,
    drop_unsolved=False,
    beta_value=0.5,
    beta_policy=1e-3,
    entropy_coef=0.0,
)
DAPO_KEYS: dict[str, Any] = dict(average="token", clip_high=0.28)

ROOT = SimpleNamespace(rollout=SimpleNamespace(max_tokens=8, async_steps=0))
"""What `check_across` reads of the keys outside the algorithm."""
REWARD_KL: dict[str, Any] = dict(kl_estimator="k1", kl_in="reward")
OWN_KEYS: dict[str, dict[str, Any]] = {
    "armor": DAPO_KEYS,
    "armor_qae": DAPO_KEYS,
    "cispo": dict(average="token", clip_low=1.0, clip_high=0.28),
    "dapo": DAPO_KEYS,
    "gspo": dict(clip_low=3e-4, clip_high=4e-4),
    "ppo": dict(average="token", **REWARD_KL),
    "prorl": DAPO_KEYS | dict(clip_high=0.4),
    "qae": DAPO_KEYS,
    "reinforce_pp": dict(average="token", **REWARD_KL),
    "rloo": REWARD_KL,
}


def make(name: str, **changed: Any) -> Any:
    """The algorithm of that name, with the plainest keys where none are given; those it does not have are an error."""
    schema = ALGORITHM_SCHEMAS[name]
    known = {f.name for f in fields(schema)}
    assert set(changed) <= known, f"{name} has no {set(changed) - known}"
    keys = KEYS | OWN_KEYS.get(name, {}) | changed | {"name": name}
    return ALGORITHMS[name](schema(**{key: keys[key] for key in known}))


def laid(rows: Ragged) -> Tensor:
    """Ragged rows as a padded (B, T) float64."""
    return padded([torch.tensor(row, dtype=torch.float64) for row in rows])


def make_batch(
    old: Ragged,
    scores: Sequence[float | None],
    *,
    group: int = 2,
    limit: int = 8,
    ref: Ragged | None = None,
    sampled: Ragged | None = None,
    truncated: Sequence[int] = (),
    anchors: Sequence[int] = (),
) -> Batch:
    """A batch whose completions have the lengths of `old`; a score of None could not be judged.

    `sampled` defaults to `old`; `truncated` and `anchors` are row numbers.
    """
    rows = torch.arange(len(old))
    length_B = torch.tensor([len(row) for row in old])
    judged_B = torch.tensor([score is not None for score in scores])
    inside_BT = torch.arange(int(length_B.max()))[None] < length_B[:, None]
    return Batch(
        tokens_BS=torch.zeros(len(old), 1 + int(length_B.max()), dtype=torch.int64),
        prompt_length_B=torch.ones(len(old), dtype=torch.int64),
        length_B=length_B,
        mask_BT=(inside_BT & judged_B[:, None]).double(),
        sampled_logprobs_BT=laid(old if sampled is None else sampled),
        score_B=torch.tensor([score or 0.0 for score in scores], dtype=torch.float64),
        judged_B=judged_B,
        truncated_B=torch.isin(rows, torch.tensor(truncated, dtype=torch.int64)),
        anchor_B=torch.isin(rows, torch.tensor(anchors, dtype=torch.int64)),
        group=group,
        limit=limit,
        old_logprobs_BT=laid(old),
        ref_logprobs_BT=None if ref is None else laid(ref),
    )


def random_batch(scores: Sequence[float | None], *, group: int, width: int = 7, seed: int = 0, **more: Any) -> Batch:
    """Lengths from 1 to `width`, log-probabilities around -1, a reference and a sampler near by, values and facts."""
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, width + 1, (len(scores),), generator=draw).tolist()
    lengths[-1] = width
    old: list[list[float]] = []
    ref: list[list[float]] = []
    sampled: list[list[float]] = []
    for length in lengths:
        base = -1 - torch.rand(length, generator=draw, dtype=torch.float64)
        near = [0.3 * torch.randn(length, generator=draw, dtype=torch.float64) for _ in range(2)]
        for rows, row in zip((old, ref, sampled), (base, base + near[0], base + near[1]), strict=True):
            rows.append(row.tolist())
    batch = make_batch(old, scores, group=group, ref=ref, sampled=sampled, **more)
    values_BT = torch.rand(batch.mask_BT.shape, generator=draw, dtype=torch.float64)
    facts = {
        name: torch.rand(len(scores) // group, generator=draw).repeat_interleave(group)
        for name in ("v_star", "ref_success")
    }
    return replace(batch, values_BT=values_BT, facts=facts)


def moved(batch: Batch, by: float = 0.5, seed: int = 1) -> Tensor:
    """(B, T) leaf: log-probabilities of a policy that has moved away from the old one, 0 on padding."""
    draw = torch.Generator().manual_seed(seed)
    assert batch.old_logprobs_BT is not None
    step_BT = by * torch.randn(batch.mask_BT.shape, generator=draw, dtype=torch.float64)
    inside_BT = torch.arange(batch.mask_BT.shape[1])[None] < batch.length_B[:, None]
    return (batch.old_logprobs_BT + step_BT * inside_BT).detach().requires_grad_()


def prepared(algorithm: Algorithm, batch: Batch) -> Batch:
    """With the signal, and weighed as one update."""
    return batch.having(**algorithm.signal(batch)).weighted(algorithm.config.average)


def near(got: Tensor, want: object, rtol: float = 1e-10) -> None:
    torch.testing.assert_close(got, torch.as_tensor(want, dtype=got.dtype), rtol=rtol, atol=1e-14)


def loss_and_gradient(algorithm: Algorithm, batch: Batch, logprobs_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Of one piece of a prepared batch, with respect to `logprobs_BT`, a leaf."""
    loss, _ = algorithm.loss(Forward(logprobs_BT=logprobs_BT), batch)
    return loss.detach(), torch.autograd.grad(loss, logprobs_BT)[0]
