"""Keys of `algorithm.*`: what is computed.  One class per algorithm; values in `conf/algorithm/`."""

from dataclasses import dataclass
from typing import Any

from rlvr.keys import ConfigError, UsedIf, key

MISMATCH = ("none", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
AVERAGES = ("token", "sequence", "budget")
TRUNCATED = ("keep", "mask", "wrong")


@dataclass(kw_only=True)
class AlgorithmConfig:
    """What every algorithm has."""

    name: str = key("which algorithm; the name of a file in conf/algorithm/")
    group: int = key("completions per prompt that are trained on (G)", unit="sequences", low=1)
    minibatches: int = key("optimizer updates per epoch over the rollouts of a step", unit="updates", low=1)
    epochs: int = key("passes over the rollouts of a step", low=1)
    average: str = key(
        "how tokens are averaged: over all tokens of the update (token), inside a sequence first (sequence), "
        "or over sequences x rollout.max_tokens (budget, Dr. GRPO)",
        choices=AVERAGES,
    )
    wrong_reward: float = key("reward of a wrong answer; a right one is worth 1", low=-1, high=0)
    truncated: str = key(
        "completions cut by the length limit: keep their score, mask them out of the loss, or count them as wrong",
        choices=TRUNCATED,
    )
    mismatch: str = key(
        "correction of the sampler/learner mismatch by rho = p_learner / p_sampler: truncate weights at mismatch_high, "
        "or mask tokens or sequences outside [mismatch_low, mismatch_high]",
        choices=MISMATCH,
    )
    mismatch_low: float = key(
        "lower bound of rho for the masks",
        unit="ratio",
        low=0,
        used_if=UsedIf("algorithm.mismatch is token_mask or sequence_mask", lambda c: c.mismatch.endswith("_mask")),
    )
    mismatch_high: float = key(
        "upper bound of rho",
        unit="ratio",
        low=1,
        used_if=UsedIf("algorithm.mismatch is not none", lambda c: c.mismatch != "none"),
    )

    def check_across(self, config: Any) -> None:
        """Contradictions between the algorithm's keys and those of other sections of `config` (a TrainConfig).

        Raises:
            ConfigError: naming both keys.
        """
        if self.mismatch_low > self.mismatch_high:
            raise ConfigError(f"algorithm.mismatch_low={self.mismatch_low} exceeds algorithm.mismatch_high={self.mismatch_high}")


_KL = UsedIf("algorithm.kl_coef > 0", lambda c: c.kl_coef > 0)


@dataclass(kw_only=True)
class GRPOConfig(AlgorithmConfig):
    """Group relative policy optimization (arXiv:2402.03300) and what is derived from it."""

    clip_low: float = key("the importance ratio is clipped at 1 - this", unit="ratio", low=0, high=1)
    clip_high: float = key("the importance ratio is clipped at 1 + this", unit="ratio", low=0)
    dual_clip: float | None = key(
        "bound of the loss of a negative advantage, as a multiple of |advantage| (arXiv:1912.09729); null for none", above=1
    )
    scale_advantages: bool = key("divide the centred rewards of a group by their standard deviation (false: Dr. GRPO)")
    kl_coef: float = key("weight of the KL penalty against the reference policy", low=0)
    kl_estimator: str = key("estimator of that KL", choices=("k1", "k2", "k3"), used_if=_KL)
    kl_in: str = key("where the KL penalty stands: in the loss or in the reward", choices=("loss", "reward"), used_if=_KL)


@dataclass(kw_only=True)
class DAPOConfig(GRPOConfig):
    """Decoupled clip and dynamic sampling (arXiv:2503.14476)."""

    overlong_buffer: int = key(
        "the length penalty grows linearly over this many tokens before rollout.max_tokens; 0 for none", unit="tokens", low=0
    )
    overlong_factor: float = key(
        "the penalty at the length limit",
        unit="reward",
        low=0,
        used_if=UsedIf("algorithm.overlong_buffer > 0", lambda c: c.overlong_buffer > 0),
    )

    def check_across(self, config: Any) -> None:
        super().check_across(config)
        if self.overlong_buffer > config.rollout.max_tokens:
            raise ConfigError(
                f"algorithm.overlong_buffer={self.overlong_buffer} exceeds rollout.max_tokens={config.rollout.max_tokens}"
            )
