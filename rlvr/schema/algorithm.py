"""Keys of `algorithm.*`: what is computed.  One class per algorithm; values in `conf/algorithm/`."""

from dataclasses import dataclass
from typing import Any

from rlvr.keys import ConfigError, UsedIf, key
from rlvr.schema.triggers import Event

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
            raise ConfigError(
                f"algorithm.mismatch_low={self.mismatch_low} exceeds algorithm.mismatch_high={self.mismatch_high}"
            )


def _sequence_average(why: str) -> Any:
    return key(f"sequence: {why}", choices=("sequence",))


# -- policy gradients ------------------------------------------------------------------------

_KL = UsedIf("algorithm.kl_coef > 0", lambda c: c.kl_coef > 0)


@dataclass(kw_only=True)
class PolicyGradientConfig(AlgorithmConfig):
    """Advantages, and a KL penalty against the reference."""

    kl_coef: float = key("weight of the KL penalty against the reference policy", low=0)
    kl_estimator: str = key("estimator of that KL", choices=("k1", "k2", "k3"), used_if=_KL)
    kl_in: str = key(
        "where the KL penalty stands: in the loss or in the reward", choices=("loss", "reward"), used_if=_KL
    )

    def check_across(self, config: Any) -> None:
        super().check_across(config)
        if config.rollout.async_steps and self.mismatch == "none":
            raise ConfigError(
                "rollout.async_steps=1 with algorithm.mismatch=none: rollouts of an older policy need the correction; "
                "use algorithm.mismatch=token_truncate, or rollout.async_steps=0"
            )


@dataclass(kw_only=True)
class ClippedConfig(PolicyGradientConfig):
    """PPO's clipped surrogate."""

    clip_low: float = key("the importance ratio is clipped at 1 - this", unit="ratio", low=0, high=1)
    clip_high: float = key("the importance ratio is clipped at 1 + this", unit="ratio", low=0)
    dual_clip: float | None = key(
        "bound of the loss of a negative advantage, as a multiple of |advantage| (arXiv:1912.09729); null for none",
        above=1,
    )


@dataclass(kw_only=True)
class GRPOConfig(ClippedConfig):
    """Group relative policy optimization (arXiv:2402.03300) and what is derived from it."""

    scale_advantages: str = key(
        "standard deviation that the centred rewards of a group are divided by: that of the group, that of the whole "
        "batch (REINFORCE++ with a group baseline), or none (Dr. GRPO)",
        choices=("group", "batch", "none"),
    )


@dataclass(kw_only=True)
class GSPOConfig(GRPOConfig):
    """Group sequence policy optimization (arXiv:2507.18071)."""

    average: str = _sequence_average("the ratio is one of whole sequences")


@dataclass(kw_only=True)
class CISPOConfig(GRPOConfig):
    """Clipped importance sampling weights (arXiv:2506.13585)."""

    clip_low: float = key(
        "the weight of a token is at least 1 - this; 1 for no lower bound", unit="ratio", low=0, high=1
    )
    clip_high: float = key("the weight of a token is at most 1 + this", unit="ratio", low=0)
    dual_clip: float | None = key(
        "null: weights are bounded, losses are not",
        used_if=UsedIf("the loss is clipped, and that of CISPO is not", lambda c: False),
    )


@dataclass(kw_only=True)
class RLOOConfig(PolicyGradientConfig):
    """REINFORCE with a leave-one-out baseline (arXiv:2402.14740)."""

    average: str = _sequence_average("a completion is one action, its log-prob the sum over its tokens")

    def check_across(self, config: Any) -> None:
        super().check_across(config)
        if self.group < 2:
            raise ConfigError(f"algorithm.group={self.group}: leaving one out needs at least 2 completions per prompt")


@dataclass(kw_only=True)
class ReinforcePPConfig(ClippedConfig):
    """REINFORCE++ (arXiv:2501.03262)."""

    kl_in: str = key(
        "reward: each token pays for its own KL and for that of all later ones", choices=("reward",), used_if=_KL
    )


@dataclass(kw_only=True)
class PPOConfig(ClippedConfig):
    """Proximal policy optimization with a critic (arXiv:1707.06347)."""

    kl_in: str = key("reward: every token pays for its own KL", choices=("reward",), used_if=_KL)
    gamma: float = key("discount per token", low=0, high=1)
    lam: float = key("decay of generalized advantage estimation", low=0, high=1)
    value_clip: float = key("most that a value may move in one step of training", above=0)


# -- DAPO and what builds on it ------------------------------------------------------------------


@dataclass(kw_only=True)
class DAPOConfig(GRPOConfig):
    """Decoupled clip and dynamic sampling (arXiv:2503.14476)."""

    overlong_buffer: int = key(
        "the length penalty grows linearly over this many tokens before rollout.max_tokens; 0 for none",
        unit="tokens",
        low=0,
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
                f"algorithm.overlong_buffer={self.overlong_buffer} exceeds "
                f"rollout.max_tokens={config.rollout.max_tokens}"
            )


@dataclass(kw_only=True)
class QAEConfig(DAPOConfig):
    """Quantile advantage estimation (arXiv:2509.22611)."""

    quantile: float = key("the baseline is this quantile of a group's rewards (K)", unit="fraction", low=0, high=1)


_RESETS = UsedIf("algorithm.reset_every > 0", lambda c: c.reset_every > 0)


@dataclass(kw_only=True)
class MovingReferenceConfig(AlgorithmConfig):
    """A reference that follows the policy on a schedule."""

    reset_every: int = key("steps between resets of the reference to the policy; 0 for none", unit="steps", low=0)
    reset_until: int | None = key(
        "last step whose end may reset it; null for no end", unit="steps", low=1, used_if=_RESETS
    )
    reset_optimizer: bool = key("a reset also clears the moments of the optimizer", used_if=_RESETS)

    @property
    def reads_reference(self) -> bool:
        """Does anything depend on what the reference is."""
        raise NotImplementedError

    def check_across(self, config: Any) -> None:
        super().check_across(config)
        if self.reset_every and not self.reads_reference:
            raise ConfigError(
                f"algorithm.reset_every={self.reset_every} moves a reference that nothing reads; "
                "use algorithm.reset_every=0"
            )


_LENGTH = UsedIf("algorithm.length_penalty > 0", lambda c: c.length_penalty > 0)


@dataclass(kw_only=True)
class ProRLConfig(MovingReferenceConfig, DAPOConfig):
    """Prolonged reinforcement learning (arXiv:2507.12507)."""

    unfinished_penalty: float = key(
        "penalty of a completion that does not end before the length limit", unit="reward", low=0
    )
    length_penalty: float = key(
        "penalty at the length limit, growing with the length as half a cosine; 0 for none", unit="reward", low=0
    )
    length_penalty_on: int = key(
        "steps with the length penalty, from the first one on", unit="steps", low=1, used_if=_LENGTH
    )
    length_penalty_off: int = key(
        "steps without it that follow; then it comes back", unit="steps", low=0, used_if=_LENGTH
    )

    @property
    def reads_reference(self) -> bool:
        return self.kl_coef > 0


@dataclass(kw_only=True)
class ARMORConfig(MovingReferenceConfig, DAPOConfig):
    """Anchored rollouts and mixture ratios (arXiv:2607.10481); the last five keys are its ablations."""

    anchor_tries: int = key(
        "completions per prompt that the reference draws",
        unit="sequences",
        low=1,
        used_if=UsedIf("algorithm.anchor is not none, or algorithm.gate asks for one", lambda c: c.draws_reference),
    )
    alpha: float = key(
        "share of the policy in the mixtures of the ratio; independent of how many anchors a group has",
        unit="fraction",
        above=0,
        high=1,
        used_if=UsedIf("algorithm.ratio is not plain", lambda c: c.ratio != "plain"),
    )
    anchor: str = key(
        "which of the reference's completions takes the last place of a group: the first correct one, the first one of "
        "any, or none",
        choices=("correct", "any", "none"),
    )
    gate: str = key(
        "prompts that are trained on: own completions mixed and a correct one by the reference (armor), the first "
        "alone (variance), the second alone (anchor), or all (none)",
        choices=("armor", "variance", "anchor", "none"),
    )
    ratio: str = key(
        "what is clipped: the ratio of mixtures with the reference per token (mixture), the policies' own (plain), "
        "that of sequences with the reference given that it is right (conditional_sequence), or the own one with a "
        "clip range wider by 1/alpha (wide_clip)",
        choices=("mixture", "plain", "conditional_sequence", "wide_clip"),
    )
    mix_on: str = key(
        "tokens with the ratio of mixtures, the others having the plain one",
        choices=("all", "anchors"),
        used_if=UsedIf("algorithm.ratio is mixture", lambda c: c.ratio == "mixture"),
    )

    @property
    def draws_reference(self) -> bool:
        """Does the reference sample completions."""
        return self.anchor != "none" or self.gate in ("armor", "anchor")

    @property
    def anchored(self) -> bool:
        """Does every group have an anchor; else it takes the place of an own completion where there is one."""
        return self.anchor == "any" or (self.anchor == "correct" and self.gate in ("armor", "anchor"))

    @property
    def mixes_reference(self) -> bool:
        """Does the ratio read the reference's log-probabilities."""
        return self.ratio in ("mixture", "conditional_sequence")

    @property
    def reads_reference(self) -> bool:
        return self.draws_reference or self.mixes_reference or self.kl_coef > 0

    def check_across(self, config: Any) -> None:
        super().check_across(config)
        if self.anchored and self.group < 3:
            raise ConfigError(
                f"algorithm.group={self.group}: an anchor and own completions that may differ need at least 3"
            )
        if config.rollout.async_steps and self.draws_reference:
            raise ConfigError(
                f"rollout.async_steps=1 with algorithm={self.name}: anchors are the reference's, and the sampler "
                "cannot change weights while the learner moves them; use rollout.async_steps=0"
            )
        if self.ratio == "conditional_sequence" and not self.draws_reference:
            raise ConfigError(
                "algorithm.ratio=conditional_sequence estimates the reference's success rate from its completions, but "
                f"algorithm.anchor={self.anchor} with algorithm.gate={self.gate} draws none"
            )
        if self.ratio == "conditional_sequence" and self.average != "sequence":
            raise ConfigError(
                f"algorithm.ratio=conditional_sequence is one ratio per sequence, but algorithm.average={self.average} "
                "weighs sequences by their length; use algorithm.average=sequence"
            )
        if self.mix_on == "anchors" and self.anchor == "none":
            raise ConfigError("algorithm.mix_on=anchors has no effect with algorithm.anchor=none")


@dataclass(kw_only=True)
class ARMORWithQAEConfig(ARMORConfig, QAEConfig):
    """ARMOR with the baseline of QAE."""


# -- regressions ---------------------------------------------------------------------------------


@dataclass(kw_only=True)
class RegressionConfig(AlgorithmConfig):
    """Squared errors of log-ratios of whole sequences; nothing in them is weighed by an importance ratio."""

    mismatch: str = key("none: a regression holds for samples of any policy", choices=("none",))


@dataclass(kw_only=True)
class REBELConfig(RegressionConfig):
    """Regression to relative rewards (arXiv:2404.16767)."""

    average: str = _sequence_average("log-probs are summed over a sequence, errors averaged over pairs")
    eta: float = key("step size: log-ratios are divided by it before they are compared with rewards", above=0)

    def check_across(self, config: Any) -> None:
        super().check_across(config)
        if self.group % 2:
            raise ConfigError(f"algorithm.group={self.group}: pairs need an even number of completions per prompt")


@dataclass(kw_only=True)
class AStarPOConfig(RegressionConfig):
    """Optimal advantage regression (arXiv:2505.20686)."""

    average: str = key("how the entropy bonus is averaged; errors are averaged over sequences", choices=AVERAGES)
    survey_count: int = key(
        "completions of the reference per prompt before training, for V* (N)", unit="sequences", low=1
    )
    drop_unsolved: bool = key("leave out prompts that the reference never solved in the survey")
    beta_value: float = key(
        "temperature of V*; 0 stands for the mean reward, the limit of a large one", unit="reward per nat", low=0
    )
    beta_policy: float = key(
        "temperature of the regression, the price of the KL to the reference", unit="reward per nat", above=0
    )
    entropy_coef: float = key("weight of the entropy bonus of the released code; 0 for none, as in the paper", low=0)

    def check_across(self, config: Any) -> None:
        super().check_across(config)
        asked = {f"triggers.{name}.then": trigger.then for name, trigger in config.triggers.items()}
        asked |= {f"stages.{name}.reset": stage.reset for name, stage in config.stages.items()}
        for where, events in asked.items():
            if Event.RESET_REFERENCE in events:
                raise ConfigError(
                    f"{where} has reset_reference, but the V* of algorithm={self.name} is that of the reference which "
                    "was surveyed before training; leave the event out"
                )
