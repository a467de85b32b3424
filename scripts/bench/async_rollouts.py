"""What drawing rollouts ahead saves, and what it does to accuracy: rollout.async_steps=0 against 1 at equal steps.

    python scripts/bench/async_rollouts.py [steps=120] [seeds=3] [algorithm=grpo] [out=runs/async]

The arms take turns, and their order turns with the seed, so that what else the machine does falls on all of them.  Two
threads of Python compute with async_steps=1: the arm to compare it with is the one that gives both cores to each phase,
and the one with a single core shows how far the two differ.  Seconds are those of steps without a validation or a
checkpoint in them; accuracy is that of the validation role after the last step, of one greedy answer per problem, with
Student's interval over seeds.  Runs that `out` holds already are not repeated.
"""

import statistics
from pathlib import Path

from _runs import Row, settings, table, train

from rlvr.ops.student import student_t

ARMS = {  # CPU threads of each phase
    "async_steps=0, 1 thread": ["rollout.async_steps=0", "hardware.threads=1"],
    "async_steps=0, 2 threads": ["rollout.async_steps=0", "hardware.threads=2"],
    "async_steps=1, 1 thread each": ["rollout.async_steps=1", "hardware.threads=1"],
}
SKIP = 3  # steps that start caches


def overrides(arm: str, given: dict[str, str], seed: int) -> list[str]:
    """Of one run; without checkpoints on the way, which would empty the pipeline."""
    steps = int(given["steps"])
    common = [f"algorithm={given['algorithm']}", f"steps={steps}", f"seed={seed}", f"validation.every={steps // 4}"]
    return [*common, "validation.test=false", "checkpoint.every=0", "checkpoint.best=false", *ARMS[arm]]


def seconds(rows: list[Row]) -> list[float]:
    """Of the steps that do nothing but sample and learn."""
    plain = [row for row in rows if row["step"] > SKIP and not {"time/validate", "time/checkpoint"} & set(row)]
    return [row["time/step"] for row in plain]


def interval(values: list[float]) -> str:
    """Mean and its 95 % interval."""
    mean = statistics.mean(values)
    if len(values) < 2:
        return f"{mean:.3f}"
    half = student_t(len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return f"{mean:.3f} +- {half:.3f}"


def middle(runs: list[list[Row]], metric: str) -> str:
    """Median over all steps that have the metric."""
    values = [row[metric] for rows in runs for row in rows if row["step"] > SKIP and metric in row]
    return f"{statistics.median(values):.3f}" if values else "-"


def main() -> None:
    """Run what is missing and print the table."""
    given = settings(steps="120", seeds="3", algorithm="grpo", out="runs/async")
    out, told = Path(given["out"]).resolve(), {arm: list[list[Row]]() for arm in ARMS}
    for seed in range(int(given["seeds"])):
        turn = seed % len(ARMS)
        for arm in [*ARMS][turn:] + [*ARMS][:turn]:
            name = f"{arm.replace(', ', '-').replace(' ', '-').replace('=', '')}-{given['algorithm']}"
            told[arm].append(train(out / f"{name}-{given['steps']}-{seed}", overrides(arm, given, seed)))
            print(arm, seed, f"{statistics.median(seconds(told[arm][-1])):.3f} s/step", flush=True)
    header = [
        "run",
        "s/step: median (quartiles)",
        "accuracy",
        "generate s",
        "await s",
        "update s",
        "stale gap",
        "stale ESS",
    ]
    lines = []
    for arm, runs in told.items():
        low, half, high = statistics.quantiles([spent for rows in runs for spent in seconds(rows)], n=4)
        accuracy = interval([rows[-1]["validation/accuracy"] for rows in runs])
        phases = ("time/generate", "time/await", "time/update", "train/stale_gap", "train/stale_ess")
        lines.append([arm, f"{half:.3f} ({low:.3f} to {high:.3f})", accuracy, *(middle(runs, m) for m in phases)])
    print(table(header, lines))


if __name__ == "__main__":
    main()
