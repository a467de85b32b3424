"""From samples to numbers: unbiased pass@k, avg@n, majority@n, each with its interval over problems."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rlvr.ops.intervals import rate_interval
from rlvr.ops.stats import clustered_se, pass_at_k, sampling_se

Sample = dict[str, Any]  # a line of samples/<benchmark>.jsonl
RIGHT = 1 - 1e-9  # scores from here on count as solved where right or wrong is asked


def grouped(samples: Iterable[Sample]) -> dict[str, list[Sample]]:
    """Samples by problem, in the order in which problems come up."""
    found: defaultdict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        found[sample["problem"]].append(sample)
    return dict(found)


# -- one problem --------------------------------------------------------------------------------


def score(samples: Sequence[Sample]) -> float:
    """Mean score; what could not be judged counts as not right, and is reported."""
    return math.fsum(s["score"] or 0.0 for s in samples) / len(samples)


def solved(samples: Sequence[Sample]) -> int:
    """How many are fully right."""
    return sum((s["score"] or 0.0) >= RIGHT for s in samples)


def majority(samples: Sequence[Sample]) -> float:
    """Is the answer that most samples give right?  Ties are decided by a fair draw, of which this is the mean.

    Answers are the same if their normal forms are, or if both are right.  Samples without an answer do not vote; where
    none votes, this is 0.
    """
    votes: Counter[str | None] = Counter()
    for sample in samples:
        if (sample["score"] or 0.0) >= RIGHT:
            votes[None] += 1
        elif sample["answer"]:
            votes[sample["answer"]] += 1
    most = max(votes.values(), default=0)
    winners = [answer for answer, count in votes.items() if count == most]
    return float(None in winners) / len(winners) if winners else 0.0


# -- a benchmark ----------------------------------------------------------------------------------


def values(name: str, problems: dict[str, list[Sample]]) -> list[float]:
    """The per-problem values of a metric: `score`, `majority` or `pass@<k>`."""
    return [_metric(name)(samples) for samples in problems.values()]


def _metric(name: str) -> Callable[[Sequence[Sample]], float]:
    if name == "score":
        return score
    if name == "majority":
        return majority
    k = int(name.removeprefix("pass@"))
    return lambda samples: pass_at_k(len(samples), solved(samples), k)


def measure(samples: Sequence[Sample], count: int, ks: Sequence[int]) -> dict[str, Any]:
    """All that is said of a benchmark, as a JSON value.

    Args:
        samples: all of them, `count` per problem.
        ks: of pass@k.

    Raises:
        ValueError: if a problem has another number of samples.
    """
    problems = grouped(samples)
    if odd := [name for name, some in problems.items() if len(some) != count]:
        raise ValueError(f"problem {odd[0]} has {len(problems[odd[0]])} samples, not {count}")
    votes = count > 1 and any(sample["answer"] is not None for sample in samples)
    names = ["score", *(f"pass@{k}" for k in ks), *(["majority"] if votes else [])]
    sources = sorted({sample["source"] for sample in samples})
    by_source = {s: {p: some for p, some in problems.items() if some[0]["source"] == s} for s in sources}
    answered = [told for sample in samples if (told := _answered(sample)) is not None]
    return {
        "problems": len(problems),
        "samples": count,
        "metrics": {name: _estimate(values(name, problems), count) for name in names},
        "se_again": _se_again(problems, count),
        "sources": {s: _estimate(values("score", some), count) for s, some in by_source.items() if len(sources) > 1},
        "length": sum(sample["tokens"] for sample in samples) / len(samples),
        "truncated": sum(sample["truncated"] for sample in samples) / len(samples),
        "unanswered": 1 - sum(answered) / len(answered) if answered else None,
        "unjudged": sum(sample["score"] is None for sample in samples) / len(samples),
        "errors": dict(Counter(sample["error"].split(":")[0][:60] for sample in samples if sample["error"])),
    }


def _estimate(rates: Sequence[float], samples: int) -> dict[str, Any]:
    """Mean, 95% interval and standard error, for new problems."""
    interval, method = rate_interval(rates, samples)
    se = clustered_se(rates)
    return {
        "value": math.fsum(rates) / len(rates),
        "low": interval[0] if interval else None,
        "high": interval[1] if interval else None,
        "method": method if interval else None,
        "se": None if math.isnan(se) else se,
        "problems": len(rates),
    }


def _se_again(problems: dict[str, list[Sample]], count: int) -> float | None:
    """Standard error of the score for the same problems sampled again; None for one sample, or scores in between."""
    rates = values("score", problems)
    if count < 2 or rates != [solved(samples) / count for samples in problems.values()]:
        return None
    return sampling_se(rates, count)


def _answered(sample: Sample) -> float | None:
    """Whether a final answer was found, where the verifier looks for one."""
    told = [value for name, value in sample["parts"].items() if name.rpartition("/")[2] == "answered"]
    return max(told) if told else None


def suite_mean(results: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The mean of the benchmarks' scores and its standard error over new problems of each; None of fewer than two."""
    if len(results) < 2:
        return None
    scores = [result["metrics"]["score"] for result in results]
    mean = math.fsum(s["value"] for s in scores) / len(scores)
    if any(s["se"] is None for s in scores):
        return {"value": mean, "se": None}
    return {"value": mean, "se": math.hypot(*(s["se"] for s in scores)) / len(scores)}
