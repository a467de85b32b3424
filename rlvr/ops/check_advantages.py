"""Evaluators of `rlvr.ops.check` for rewards, advantages, V*, gates and statistics."""

import torch
from torch import Tensor

from rlvr.ops import advantage, stats
from rlvr.ops.check_cases import Case, Kind, Numbers, Rows, tensor


def advantages(case: Case) -> Numbers:
    if "groups" in case.inputs:
        return _whole_batch(case)
    return _quantiles(case) if "group_size" in case.inputs else _one_group(case)


def _one_group(case: Case) -> Numbers:
    reward_PG = tensor([case.inputs["rewards"]])
    count = reward_PG.shape[-1]
    scaled = {
        name: advantage.standardized(reward_PG, ddof=ddof, eps=eps)
        for name, ddof, eps in case.matched("grpo_ddof#_eps#")
    }
    rows = {
        "grpo": advantage.standardized(reward_PG),
        "dr_grpo": advantage.centred(reward_PG),
        "rloo": advantage.leave_one_out(reward_PG),
        "rloo_equals_scaled_centered": advantage.centred(reward_PG) * count / max(count - 1, 1),
        **scaled,
    }
    moments = {f"std_ddof{ddof}": advantage.moments(reward_PG, ddof=ddof)[1].squeeze() for ddof in (0, 1)}
    return {
        "mean": advantage.moments(reward_PG)[0].squeeze(),
        **moments,
        "keep_in_dynamic_sampling": advantage.mixed(reward_PG)[0],
        **{name: row[0] for name, row in rows.items()},
    }


def _whole_batch(case: Case) -> Numbers:
    rows = Rows.of(case.inputs["groups"])
    reward_PG, valid_PG = rows.lay(case.inputs["groups"]), rows.mask_BT > 0
    shown = {
        "reinforce_pp_seq_level": advantage.reinforce_pp(reward_PG, valid_PG)[valid_PG],
        "baseline_seq_level": advantage.reinforce_pp_baseline(reward_PG, valid_PG)[valid_PG],
    }
    if "lengths" in case.inputs:
        lengths = rows.lay(case.inputs["lengths"])[valid_PG].int().tolist()
        mask_BT = Rows(tuple(lengths), flat=False).mask_BT
        centred_BT = advantage.centred(reward_PG, valid_PG)[valid_PG][:, None].expand_as(mask_BT)
        shown["baseline_token_level_whiten_ddof1"] = advantage.whiten(centred_BT, mask_BT)[:, 0]
    return shown


def _quantiles(case: Case) -> Numbers:
    shown: Numbers = {}
    for name, correct, size in case.matched("correct=#_of_#"):
        reward_PG = tensor([[1.0] * correct + [0.0] * (size - correct)])
        quantiles = Case(case.inputs, case.expected[name]).matched("K=#")
        shown[name] = {key: _quantile_entry(reward_PG, correct, share) for key, share in quantiles}
    return shown


def _quantile_entry(reward_PG: Tensor, correct: int, share: float) -> Numbers:
    """QAE's baseline beside that of linear interpolation; None for a class that has no member."""
    baselines = {
        "paper": ("baseline_paper", advantage.quantile(reward_PG, share)),
        "torch": ("baseline_torch_linear", torch.quantile(reward_PG, share, dim=-1, keepdim=True)),
    }
    shown: Numbers = {}
    for name, (title, baseline_P1) in baselines.items():
        values = advantage.standardized(reward_PG, baseline_P1=baseline_P1)[0]
        shown |= {
            title: baseline_P1[0, 0],
            f"adv_correct_{name}": values[0] if correct > 0 else None,
            f"adv_wrong_{name}": values[-1] if correct < len(values) else None,
        }
    return shown


def gae(case: Case) -> Numbers:
    rows = Rows.of(case.inputs["values"])
    mask = rows.lay(case.inputs["mask"]) if "mask" in case.inputs else rows.mask_BT
    reward, values = rows.lay(case.inputs["rewards"]), rows.lay(case.inputs["values"])
    advantages, returns = advantage.gae(reward, values, mask, case.inputs["gamma"], case.inputs["lam"])
    whitened = {
        name: advantage.whiten(advantages, mask, ddof=ddof, eps=eps)
        for name, ddof, eps in case.matched("whitened_ddof#_eps#")
    }
    return {name: rows.lift(x) for name, x in {"advantages": advantages, "returns": returns, **whitened}.items()}


def overlong_shaping(case: Case) -> Numbers:
    limit, buffer, factor = case.inputs["l_max"], case.inputs["l_cache"], case.inputs.get("factor", 1.0)
    return {
        name: factor * advantage.overlong_penalty(tensor([length]), limit, buffer)[0]
        for name, length in case.matched("#")
    }


def astar_vstar(case: Case) -> Numbers:
    shown = {}
    for name, entry in case.expected.items():
        reward_N = tensor(entry["rewards"])
        shown[name] = {
            "mean_for_beta0_option": advantage.v_star(reward_N, 0.0),
            **{key: advantage.v_star(reward_N, beta) for key, beta in Case({}, entry).matched("beta=#")},
        }
        if "beta" in entry:
            shown[name]["vstar"] = advantage.v_star(reward_N, entry["beta"])
    return shown


def astar_binary_closed_form(case: Case) -> Numbers:
    return {name: advantage.binary_v_star(case.inputs["p"], beta) for name, beta in case.matched("beta=#")}


def astar_vhat_bias(case: Case) -> Numbers:
    beta = case.inputs["beta1"]
    shown: Numbers = {}
    for name, p in case.matched("p=#"):
        shown[name] = {"V_star_exact": advantage.binary_v_star(p, beta)}
        for key, n in Case({}, case.expected[name]).matched("N=#"):
            chances = stats.binomial(n, p)
            estimates = [advantage.binary_v_star(c / n, beta) for c in range(n + 1)]
            mean = sum(chance * estimate for chance, estimate in zip(chances, estimates, strict=True))
            shown[name][key] = {"E_vhat": mean, "P_all_wrong": chances[0]}
    return shown


def armor_gate(case: Case) -> Numbers:
    shown = []
    for entry in case.expected["cases"]:
        right = entry["on_correct"]
        own_PN = tensor([[1.0] * right + [0.0] * (case.inputs["n_on"] - right)])
        keep_P, first_PM = advantage.anchor_gate(own_PN, tensor([entry["ref"]]))
        keep = keep_P.item()
        shown.append({"keep": keep, "anchor_index": first_PM[0].int().argmax().item() if keep else None})
    return {"cases": shown}


def armor_anchor_baseline_shift(case: Case) -> Numbers:
    own_PG, anchor = tensor([case.inputs["on_policy"]]), case.inputs["anchor"]
    size, best, worst = own_PG.shape[-1], own_PG.argmax(), own_PG.argmin()
    both_PG = torch.cat([own_PG, tensor([[anchor]])], dim=-1)
    shown: Numbers = {}
    for reward_PG, where, on in ((own_PG, "on", "on_only"), (both_PG, "with_anchor", "with_anchor")):
        mean_P1, deviation_P1 = advantage.moments(reward_PG)
        values = advantage.standardized(reward_PG)[0]
        shown |= {f"mean_{where}": mean_P1.squeeze(), f"std_{where}": deviation_P1.squeeze()}
        shown |= {f"adv_correct_{on}": values[best], f"adv_wrong_{on}": values[worst]}
        shown[f"sum_on_policy_adv_{on}"] = values[:size].sum()
    return shown


def armor_gate_keep_probability(case: Case) -> Numbers:
    own, tries = case.inputs["n_on"], case.inputs["n_ref"]
    shown: Numbers = {}
    for name, p in case.matched("p=#"):
        armor, dapo = stats.anchored_probability(p, p, own, tries), stats.mixed_probability(p, own + 1)
        shown[name] = {
            f"ref_hit_in_{tries}": stats.hit_probability(p, tries),
            f"on_mixed_of_{own}": stats.mixed_probability(p, own),
            "armor_keep_if_same_p": armor,
            f"dapo_keep_{own + 1}": dapo,
            "relative_weight": armor / dapo,
        }
    return shown


def pass_at_k(case: Case) -> Numbers:
    return {name: stats.pass_at_k(n, c, k) for name, n, c, k in case.matched("n=#,c=#,k=#")}


def confidence_interval(case: Case) -> Numbers:
    n = case.inputs["n"]
    rates = [count / n for count in case.inputs["correct_counts"]]
    mean, se, trials = sum(rates) / len(rates), stats.clustered_se(rates), n * len(rates)
    shown: Numbers = {
        "mean": mean,
        "se_clustered_over_problems": se,
        "ci95_clustered": stats.normal_interval(mean, se),
        "se_sampling_only_fixed_problems": stats.sampling_se(rates, n),
        f"se_naive_iid_{trials}": stats.naive_se(mean, trials),
        "se_if_one_sample_per_problem": stats.one_sample_se(rates),
    }
    if "correct_counts_model_b" in case.inputs:
        others = [count / n for count in case.inputs["correct_counts_model_b"]]
        difference, difference_se = stats.paired_difference(rates, others)
        shown |= {"paired_diff_mean": difference, "paired_diff_se": difference_se}
        shown["unpaired_diff_se"] = stats.unpaired_se(rates, others)
    return shown


ADVANTAGE_KINDS = {
    "advantage_": Kind(advantages),
    "aime_": Kind(confidence_interval),
    "armor_anchor": Kind(armor_anchor_baseline_shift),
    "armor_gate": Kind(armor_gate, given=frozenset({"on_correct", "ref"})),
    "armor_gate_keep": Kind(armor_gate_keep_probability, floor=0.0),
    "astar_binary": Kind(astar_binary_closed_form),
    "astar_vhat": Kind(astar_vhat_bias, floor=0.0),
    "astar_vstar": Kind(astar_vstar, given=frozenset({"rewards", "beta"})),
    "gae": Kind(gae),
    "overlong": Kind(overlong_shaping),
    "pass_at_k": Kind(pass_at_k, floor=0.0),
}
