"""The formulas of the papers as pure tensor functions: no config, no batch, no ranks.

    policy      ratios, clipped objectives, KL estimators, mixtures, sampler mismatch, regressions
    advantage   group baselines, quantiles, GAE, whitening, V*, length penalty, gates
    stats       pass@k, intervals over problems, retention probabilities
    check       `python -m rlvr.ops.check FILE`: the functions against a file of worked numbers

Letters in names:  P prompts   G completions per prompt   B = P*G sequences   T completion tokens.
A mask is 1 (or True) where a token counts.  Every function works in float32 and in float64.
"""
