"""What is recorded of the tokens of every update, whichever the algorithm."""

import torch
from torch import Tensor

from rlvr.algorithms.base import Forward, Metrics
from rlvr.batch import Batch
from rlvr.ops.policy import KL, masked_mean


@torch.no_grad()
def watch(new: Forward, batch: Batch, **more_BT: Tensor) -> Metrics:
    """Metrics of one micro-batch: how far policy, sampler and reference are apart, entropy, and what is given.

    Each is a mean over sequences of the mean over tokens, so that it means the same under every `average`.

    Args:
        more_BT: (B, T) numbers or flags to be averaged too.
    """
    policy, old, ref = new.logprobs_BT, batch.old_logprobs_BT, batch.ref_logprobs_BT
    assert policy is not None
    seen = dict(more_BT)
    if old is not None:
        sampled_BT = torch.where(batch.anchor_B[:, None], old, batch.sampled_logprobs_BT)
        seen |= {
            "kl_step": KL["k3"](old, policy),
            "mismatch_k1": KL["k1"](sampled_BT, old),
            "mismatch_k3": KL["k3"](sampled_BT, old),
        }
    if ref is not None:
        seen |= {f"kl_ref_{name}": KL[name](policy, ref) for name in ("k1", "k3")}
    if new.entropy_BT is not None:
        seen["entropy"] = new.entropy_BT
    return {
        name: batch.sequence_mean(masked_mean(x_BT.to(policy.dtype), batch.mask_BT, -1)) for name, x_BT in seen.items()
    }
