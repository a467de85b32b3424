"""How often 95% intervals of a benchmark's mean hold the true mean, by simulation: `python scripts/coverage.py`.

Benchmarks of 30 problems, 16 samples each: success rates of the problems are drawn from a distribution, samples from
the rates, and the interval is compared with the mean of the distribution.  Columns:

    normal     mean -+ 1.96 standard errors over problems
    student    the same with Student's t
    bootstrap  percentiles of the mean of problems drawn with replacement
    ours       rlvr.ops.intervals.problem_interval

The last part does the same for differences of two models on the same problems (rlvr.ops.intervals.paired_interval).
"""

import argparse
from collections.abc import Callable, Iterator

import numpy as np

from rlvr.ops.intervals import paired_interval, problem_interval, student_t
from rlvr.ops.stats import bootstrap_interval, clustered_se, normal_interval, pass_at_k

PROBLEMS, SAMPLES = 30, 16
MEANS = (0.02, 0.03, 0.05, 0.07, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.93, 0.95, 0.98)
# correct answers of 32 for the 30 problems of an examination, by a model of middling strength
EXAM = np.array([32] * 6 + [28, 24, 20, 16, 12, 8, 6, 4, 3, 2, 1, 1] + [0] * 12) / 32
Draw = Callable[[np.random.Generator], np.ndarray]


def benchmarks() -> Iterator[tuple[str, float, Draw]]:
    """Name, true mean and how rates are drawn; `spread` is from all-or-nothing problems to ones that are alike."""
    for mean in MEANS:
        for spread, size in (("all or nothing", 0.3), ("wide", 1.0), ("middling", 3.0), ("alike", 10.0)):
            yield (
                f"mean {mean:<5} {spread}",
                mean,
                lambda rng, m=mean, s=size: rng.beta(m * s, (1 - m) * s, PROBLEMS),
            )
    yield "examination", float(EXAM.mean()), lambda rng: rng.choice(EXAM, PROBLEMS)
    yield "all 0.2", 0.2, lambda rng: np.full(PROBLEMS, 0.2)
    yield "all 0.5", 0.5, lambda rng: np.full(PROBLEMS, 0.5)
    yield "a third 0.5, else 0", 1 / 6, lambda rng: 0.5 * (rng.random(PROBLEMS) < 1 / 3)


def methods(rates: list[float], bootstrap: bool) -> dict[str, tuple[float, float] | None]:
    """Every method's interval of one simulated benchmark."""
    mean, se = float(np.mean(rates)), clustered_se(rates)
    found: dict[str, tuple[float, float] | None] = {
        "normal": normal_interval(mean, se),
        "student": normal_interval(mean, se, student_t(len(rates) - 1)),
        "ours": problem_interval(rates, SAMPLES),
    }
    return found | ({"bootstrap": bootstrap_interval(rates, seed=0, resamples=500)} if bootstrap else {})


def coverage(mean: float, draw: Draw, rounds: int, bootstrap: bool = False, seed: int = 0) -> dict[str, float]:
    """Share of simulated benchmarks whose interval holds the true mean, by method."""
    rng, held = np.random.default_rng(seed), dict[str, int]()
    for _ in range(rounds):
        rates = (rng.binomial(SAMPLES, draw(rng)) / SAMPLES).tolist()
        for name, interval in methods(rates, bootstrap).items():
            held[name] = held.get(name, 0) + int(interval is not None and interval[0] <= mean <= interval[1])
    return {name: count / rounds for name, count in held.items()}


def pass_coverage(draw: Draw, k: int, rounds: int, seed: int = 0) -> float:
    """The same for pass@k, whose true value is the mean of 1 - (1 - p)^k, by 200,000 draws."""
    rng, held = np.random.default_rng(seed), 0
    true = float(np.mean([1 - (1 - draw(rng)) ** k for _ in range(200_000 // PROBLEMS)]))
    for _ in range(rounds):
        values = [pass_at_k(SAMPLES, int(c), k) for c in rng.binomial(SAMPLES, draw(rng))]
        interval = problem_interval(values, SAMPLES)
        held += interval is not None and interval[0] <= true <= interval[1]
    return held / rounds


def paired_coverage(draw: Draw, gain: float, rounds: int, seed: int = 0) -> float:
    """How often the interval of a difference holds it: the second model's rates are p + gain p (1 - p)."""
    rng, held = np.random.default_rng(seed), 0
    many = np.concatenate([draw(rng) for _ in range(200_000 // PROBLEMS)])
    true = float(np.mean(gain * many * (1 - many)))
    for _ in range(rounds):
        p = draw(rng)
        pair = [rng.binomial(SAMPLES, rates) / SAMPLES for rates in (p, p + gain * p * (1 - p))]
        interval = paired_interval((pair[1] - pair[0]).tolist())
        held += interval is not None and interval[0] <= true <= interval[1]
    return held / rounds


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8000)
    rounds = parser.parse_args().rounds
    print("| benchmark | normal | student | bootstrap | ours | ours, pass@4 | paired difference |")
    print("|---|---|---|---|---|---|---|")
    for name, mean, draw in benchmarks():
        told = coverage(mean, draw, rounds // 8, bootstrap=True) | coverage(mean, draw, rounds, seed=1)
        shown = [told[method] for method in ("normal", "student", "bootstrap", "ours")]
        shown += [pass_coverage(draw, 4, rounds), paired_coverage(draw, 0.3, rounds)]
        print(f"| {name} | " + " | ".join(f"{100 * share:.1f}" for share in shown) + " |", flush=True)


if __name__ == "__main__":
    main()
