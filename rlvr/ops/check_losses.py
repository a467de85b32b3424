"""Evaluators of `rlvr.ops.check` for what is minimised: each says a case's numbers with `rlvr.ops.policy`."""

import re
from collections.abc import Callable

import torch
from torch import Tensor

from rlvr.ops import advantage, policy
from rlvr.ops.check_cases import NUMBER, Case, Kind, Numbers, Rows, gradient, number, tensor


def _tokens(case: Case, *names: str) -> tuple[Rows, Tensor, list[Tensor]]:
    """The rows, the learner's log-probabilities as a leaf, and other fields of the same shape."""
    rows = Rows.of(case.inputs["logp"])
    return rows, rows.lay(case.inputs["logp"]).requires_grad_(), [rows.lay(case.inputs[name]) for name in names]


def _advantage_BT(case: Case, rows: Rows) -> Tensor:
    """One advantage per sequence, given or standardized from the group's rewards, on every token."""
    if "adv" in case.inputs:
        return tensor(case.inputs["adv"]).view(-1, 1).expand_as(rows.mask_BT)
    shape = dict(ddof=case.inputs.get("adv_std_ddof", 1), eps=case.inputs.get("adv_eps", 1e-6))
    return advantage.standardized(tensor([case.inputs["rewards"]]), **shape).view(-1, 1).expand_as(rows.mask_BT)


def _surrogate(case: Case, ratio: Tensor, advantages: Tensor) -> Tensor:
    return policy.clipped_surrogate(ratio, advantages, *case.bounds(), case.inputs.get("dual_clip"))


def grpo(case: Case) -> Numbers:
    rows, logp, (old,) = _tokens(case, "old_logp")
    ratio = policy.importance_ratio(logp - old)
    terms = _surrogate(case, ratio, _advantage_BT(case, rows))
    kl = {}
    if "ref_logp" in case.inputs:
        kl = {name: estimate(logp, rows.lay(case.inputs["ref_logp"])) for name, estimate in policy.KL.items()}
    if beta := case.inputs.get("beta", 0.0):
        terms = terms + beta * kl[case.inputs.get("kl_estimator", "k3")]
    loss = policy.masked_mean(terms, rows.mask_BT, -1).mean()
    shown = {"ratio": ratio, "grad": gradient(loss, logp), **kl}
    return {"loss": loss, **{name: rows.lift(x) for name, x in shown.items()}}


def dapo(case: Case) -> Numbers:
    rows, logp, (old,) = _tokens(case, "old_logp")
    ratio = policy.importance_ratio(logp - old)
    terms = _surrogate(case, ratio, _advantage_BT(case, rows))
    loss = policy.masked_mean(terms, rows.mask_BT)
    by_sequence = policy.masked_mean(terms, rows.mask_BT, -1).mean()
    return {
        "loss": loss,
        "grad": rows.lift(gradient(loss, logp)),
        "ratio": rows.lift(ratio),
        "per_token": rows.lift(terms),
        "loss_if_sequence_mean": by_sequence,
        "loss_if_microbatch1_token_mean_weighted_by_sequences": by_sequence,
    }


def dr_grpo(case: Case) -> Numbers:
    rows, logp, (old,) = _tokens(case, "old_logp")
    terms = _surrogate(case, policy.importance_ratio(logp - old), _advantage_BT(case, rows))
    loss = policy.masked_sum(terms, rows.mask_BT) / (len(rows.lengths) * case.inputs["l_max"])
    return {"loss": loss, "grad": rows.lift(gradient(loss, logp))}


def gspo(case: Case) -> Numbers:
    rows, logp, (old,) = _tokens(case, "old_logp")
    ratio_B = policy.sequence_ratio(logp - old, rows.mask_BT)
    loss = _surrogate(case, ratio_B, _advantage_BT(case, rows)[:, 0]).mean()
    return {"loss": loss, "seq_ratio": ratio_B, "grad": rows.lift(gradient(loss, logp))}


def cispo_bounds(clip: str) -> tuple[float | None, float]:
    """[low, high] of the ratio that a name such as `upper_only_1p28` spells.

    Raises:
        ValueError: for a name of another form.
    """
    forms: dict[str, Callable[..., tuple[float | None, float]]] = {
        rf"upper_only_({NUMBER})": lambda cap: (None, cap),
        rf"two_sided_\w*?({NUMBER})_({NUMBER})": lambda low, high: (1 - low, 1 + high),
        rf"abs_cap_\w*?({NUMBER})": lambda cap: (None, cap),
    }
    for form, bounds in forms.items():
        if found := re.fullmatch(form, clip):
            return bounds(*map(number, found.groups()))
    raise ValueError(f"clip={clip!r}: expected upper_only_*, two_sided_*_* or abs_cap_*")


def cispo(case: Case) -> Numbers:
    rows, logp, (old,) = _tokens(case, "old_logp")
    weight = policy.cispo_weight(policy.importance_ratio(logp - old), *cispo_bounds(case.inputs["clip"]))
    loss = policy.masked_mean(policy.reinforce_loss(logp, _advantage_BT(case, rows), weight), rows.mask_BT)
    return {"loss": loss, "coef": rows.lift(weight), "grad": rows.lift(gradient(loss, logp))}


def clip_quadrants(case: Case) -> Numbers:
    low = case.inputs["eps_low"]
    shown: Numbers = {}
    for name, entry in case.expected.items():
        log_ratio = tensor(entry["ratio"]).log().requires_grad_()
        shown[name] = {}
        for clip, high in zip(("sym", "dapo"), case.inputs["eps_high"], strict=True):
            loss = policy.clipped_surrogate(policy.importance_ratio(log_ratio), tensor(entry["adv"]), low, high)
            shown[name] |= {f"{clip}_loss": loss, f"{clip}_grad": gradient(loss, log_ratio)}
    return shown


def ppo_value_loss(case: Case) -> Numbers:
    rows = Rows.of(case.inputs["vpreds"])
    values = rows.lay(case.inputs["vpreds"]).requires_grad_()
    old, returns = rows.lay(case.inputs["old_values"]), rows.lay(case.inputs["returns"])
    clip, mask = case.inputs["cliprange"], rows.mask_BT
    loss = policy.masked_mean(policy.clipped_value_loss(values, old, returns, clip), mask)
    return {
        "loss": loss,
        "grad": rows.lift(gradient(loss, values)),
        "unclipped_loss": policy.masked_mean(policy.clipped_value_loss(values, old, returns, float("inf")), mask),
        "clipfrac": policy.masked_mean(policy.value_clip_events(values, old, returns, clip).double(), mask),
    }


def rloo(case: Case) -> Numbers:
    rows, logp, (ref,) = _tokens(case, "ref_logp")
    kl_B = policy.masked_sum(policy.k1(logp, ref), rows.mask_BT, -1).detach()
    reward_B = tensor(case.inputs["rewards"]) - case.inputs["beta"] * kl_B
    advantage_B = advantage.leave_one_out(reward_B[None])[0]
    loss = policy.reinforce_loss(policy.masked_sum(logp, rows.mask_BT, -1), advantage_B).mean()
    shown = {"seq_kl_k1": kl_B, "shaped_rewards": reward_B, "adv": advantage_B}
    return {**shown, "loss": loss, "grad": rows.lift(gradient(loss, logp))}


def rebel(case: Case) -> Numbers:
    rows, logp, (old,) = _tokens(case, "old_logp")
    eta, reward_B = case.inputs["eta"], tensor(case.inputs["rewards"])
    log_ratio_B = policy.masked_sum(logp - old, rows.mask_BT, -1)
    loss = policy.rebel_loss(log_ratio_B, reward_B, eta).mean()
    moved = -log_ratio_B.view(-1, 2).diff(dim=-1).squeeze(-1)
    return {
        "loss": loss,
        "loss_repo_form": eta**2 * loss,
        "delta_log_ratio": moved[0] if len(moved) == 1 else moved,
        "grad": rows.lift(gradient(loss, logp)),
    }


def astar_loss(case: Case) -> Numbers:
    rows, logp, (ref,) = _tokens(case, "ref_logp")
    target_B = tensor(case.inputs["rewards"]) - tensor(case.inputs["v_star"])
    residual_B = policy.astar_residual(policy.masked_sum(logp - ref, rows.mask_BT, -1), target_B, case.inputs["beta2"])
    loss = residual_B.square().mean()
    return {
        "loss": loss,
        "residual": residual_B,
        "grad": rows.lift(gradient(loss, logp)),
        "optimal_seq_log_ratio": policy.optimal_log_ratio(target_B, case.inputs["beta2"]),
    }


def armor_rmix(case: Case) -> Numbers:
    shown = {}
    for name, entry in case.expected.items():
        logp, old, ref = (tensor(entry[x]) for x in ("logp", "old_logp", "ref_logp"))
        ratio = policy.importance_ratio(policy.mixture_log_ratio(logp.requires_grad_(), old, ref, entry["alpha"]))
        shown[name] = {
            "plain_ratio": policy.importance_ratio(logp - old),
            "r_mix": ratio,
            "dr_mix_dlogp": gradient(ratio, logp),
        }
    return shown


def armor_loss(case: Case) -> Numbers:
    rows, logp, (old, ref) = _tokens(case, "old_logp", "ref_logp")
    ratio = policy.importance_ratio(policy.mixture_log_ratio(logp, old, ref, case.inputs["alpha"]))
    advantages = _advantage_BT(case, rows)
    events = policy.clip_events(ratio, advantages, *case.bounds(), case.inputs.get("dual_clip"))
    loss = policy.masked_mean(_surrogate(case, ratio, advantages), rows.mask_BT)
    return {
        "loss": loss,
        "r_mix": rows.lift(ratio),
        "plain_ratio": rows.lift(policy.importance_ratio(logp - old)),
        "grad": rows.lift(gradient(loss, logp)),
        "active": rows.lift(~(events.low | events.high | events.dual)),
    }


def armor_effective_bounds(case: Case) -> Numbers:
    shown = {}
    for name, entry in case.expected.items():
        old, ref = tensor(entry["pi_old"]), tensor(entry["pi_ref"])
        lower, upper = policy.mixture_bounds(old, ref, entry["alpha"], *case.bounds())
        shown[name] = {
            "lower_pi": lower,
            "upper_pi": upper,
            "lower_ratio": lower / old,
            "upper_ratio": upper / old,
            "lower_is_vacuous": lower <= 0,
            "upper_is_vacuous": upper >= 1,
        }
    return shown


def armor_conditional_anchor(case: Case) -> Numbers:
    new, old, ref = (tensor([[case.inputs[x]]]).log() for x in ("pi", "pi_old", "pi_ref"))
    share = case.inputs["alpha"]
    shown = {}
    for name, rate in case.matched("p_ref=#"):
        told = dict(share=share, correct_B=torch.tensor([True]), ref_success_B=tensor([rate]))
        conditional_B = policy.conditional_sequence_log_ratio(new, old, ref, torch.ones_like(new), **told)
        shown[name] = {
            "r_mix_as_published": policy.importance_ratio(policy.mixture_log_ratio(new, old, ref, share))[0, 0],
            "r_mix_conditional": policy.importance_ratio(conditional_B)[0],
        }
    return shown


def kl_estimators(case: Case) -> Numbers:
    return _kl_exact(case) if "logits" in case.inputs else _kl_tokens(case)


def _kl_exact(case: Case) -> Numbers:
    logits = tensor(case.inputs["logits"]).requires_grad_()
    log_p, log_q = logits.log_softmax(-1), tensor(case.inputs["q"]).log()
    p = log_p.detach().exp()
    reverse, forward = policy.kl_divergence(log_p, log_q), policy.kl_divergence(log_q, log_p)
    in_reward = policy.reinforce_loss(log_p, -policy.k1(log_p, log_q).detach())
    shown: Numbers = {
        "p": p,
        "kl_reverse": reverse,
        "kl_forward": forward,
        "grad_reverse_kl": gradient(reverse, logits),
        "grad_forward_kl": gradient(forward, logits),
        "expected_grad_k1_in_reward": gradient((p * in_reward).sum(), logits),
    }
    for name, estimate in policy.KL.items():
        values = estimate(log_p, log_q)
        mean = (p * values).sum()
        shown |= {
            name: values,
            f"E_{name}": mean,
            f"var_{name}": (p * (values - mean) ** 2).sum(),
            f"bias_E_{name}": mean - reverse,
            f"expected_grad_{name}_as_loss": gradient(mean, logits),
        }
    return shown


def _kl_tokens(case: Case) -> Numbers:
    rows, logp, (ref,) = _tokens(case, "ref_logp")
    values = {name: estimate(logp, ref) for name, estimate in policy.KL.items()}
    slopes = {f"d{name}": gradient(value.sum(), logp) for name, value in values.items()}
    return {name: rows.lift(x) for name, x in {**values, **slopes}.items()}


def entropy(case: Case) -> Numbers:
    logits = tensor(case.inputs["logits"]).requires_grad_()
    exact, log_p = policy.entropy(logits), logits.log_softmax(-1)
    p, sampled = log_p.exp(), -log_p
    mean = (p * sampled).sum()
    return {
        "entropy": exact,
        "logsumexp_minus_expected_logit": exact,
        "sampled": sampled,
        "E_sampled": mean,
        "var_sampled": (p * (sampled - mean) ** 2).sum(),
        "grad_entropy_logits": gradient(exact, logits),
        **{name: policy.entropy(logits, temperature) for name, temperature in case.matched("entropy_T_#")},
    }


def tis(case: Case) -> Numbers:
    rows = Rows.of(case.inputs["old_logp_trainer"])
    old, sampled = rows.lay(case.inputs["old_logp_trainer"]), rows.lay(case.inputs["rollout_logp"])
    mask, delta = rows.mask_BT, old - sampled
    stats = policy.mismatch_statistics(old, sampled, mask)
    shown: Numbers = {
        "rho": rows.lift(policy.importance_ratio(delta)),
        "seq_ratio": rows.lift_B(policy.importance_ratio(policy.masked_sum(delta, mask, -1))),
        "geo_mean": rows.lift_B(policy.sequence_ratio(delta, mask)),
        **{f"mismatch_{name}": value for name, value in stats._asdict().items()},
    }
    logp = old.clone().requires_grad_()
    ratio = policy.importance_ratio(logp - old)
    for name, (correction, low, high) in _corrections(case).items():
        weight = policy.MISMATCH[correction](old, sampled, mask, low, high)
        # The ratio is 1 here, where no clip range matters.
        terms = weight * policy.clipped_surrogate(ratio, _advantage_BT(case, rows), 0.2, 0.2)
        loss = policy.masked_mean(terms, mask)
        shown[name] = rows.lift_B(weight[:, 0]) if name.startswith("seq") else rows.lift(weight)
        shown |= {f"loss_{name}": loss, f"grad_{name}": rows.lift(gradient(loss, logp))}
    return shown


def _corrections(case: Case) -> dict[str, tuple[str, float, float]]:
    """What the file calls the entries of MISMATCH, with their bounds."""
    told: dict[str, tuple[str, float, float]] = {}
    if "C" in case.inputs:
        told |= {"token_tis": ("token_truncate", 0.0, case.inputs["C"])}
        told |= {"seq_tis": ("sequence_truncate", 0.0, case.inputs["C"])}
    if "icepop" in case.inputs:
        told |= {"token_icepop": ("token_mask", *case.inputs["icepop"])}
    if "seq_mask" in case.inputs:
        told |= {"seq_mask": ("sequence_mask", *case.inputs["seq_mask"])}
    told |= {name: ("token_mask", low, high) for name, low, high in case.matched("token_mask_#_#")}
    told |= {name: ("sequence_mask", low, high) for name, low, high in case.matched("seq_mask_#_#")}
    return told


LOSS_KINDS = {
    "armor_conditional": Kind(armor_conditional_anchor),
    "armor_effective_bounds": Kind(armor_effective_bounds, given=frozenset({"pi_old", "pi_ref", "alpha"})),
    "armor_loss": Kind(armor_loss),
    "armor_rmix": Kind(armor_rmix, given=frozenset({"logp", "old_logp", "ref_logp", "alpha"})),
    "astar_loss": Kind(astar_loss),
    "cispo": Kind(cispo),
    "clip_quadrants": Kind(clip_quadrants, given=frozenset({"ratio", "adv"})),
    "dapo": Kind(dapo),
    "dr_grpo": Kind(dr_grpo),
    "entropy": Kind(entropy),
    "grpo": Kind(grpo),
    "gspo": Kind(gspo),
    "kl_": Kind(kl_estimators),
    "ppo_value_loss": Kind(ppo_value_loss),
    "rebel": Kind(rebel),
    "rloo": Kind(rloo),
    "tis": Kind(tis),
}
