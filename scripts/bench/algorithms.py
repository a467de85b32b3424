"""A short run of every algorithm on the embedded default: does it learn, and what does it cost?

    python scripts/bench/algorithms.py [steps=120] [seed=0] [only=grpo,dapo] [out=runs/algorithms]

All train on 256 sequences a step, from the same warm-started model, on the same problems.  Runs that `out` holds
already are not repeated.  Each run has one thread, so that a machine that does other things as well slows it little.
The accuracy is that of the validation role, of one greedy answer per problem; one seed
says that a method works here, not which is better.
"""

import statistics
from pathlib import Path

from _runs import Row, median, settings, summary, table, train

PER_STEP = 256  # sequences
SOURCES = ("policy", "reference")
GROUPS = {"ppo": 1, "reinforce_pp": 1, "astar_po": 1, "astar_po_single_beta": 1, "rebel": 2, "rloo": 4}
NAMES = (
    *("grpo", "dr_grpo", "dapo", "rloo", "reinforce_pp", "reinforce_pp_baseline", "ppo", "gspo", "cispo", "rebel"),
    *("qae", "armor", "armor_qae", "armor_no_gate", "armor_plain_ratio", "armor_mixture_only", "dapo_gate"),
    *("dapo_wide_clip", "prorl", "prorl_v2", "astar_po", "astar_po_single_beta"),
)
# Where the learning rate of the others, 3e-4, is too high: nothing bounds the step of an unclipped regression, and V*
# lies above the mean reward, so that most completions are pushed down.
SUITED: dict[str, list[str]] = {"astar_po": ["optim.lr=5.0e-5"]}


def overrides(name: str, steps: int, seed: int) -> list[str]:
    """Of one run."""
    given = [
        f"algorithm={name}",
        f"rollout.prompts={PER_STEP // GROUPS.get(name, 16)}",
        f"seed={seed}",
        f"steps={steps}",
    ]
    given += [f"validation.every={steps // 4}", "checkpoint.every=0", "checkpoint.best=false"]
    return [*given, "hardware.threads=1", *SUITED.get(name, [])]


def accuracy(row: Row) -> str:
    """Of the validation role, with its interval."""
    value, low, high = (row[f"validation/accuracy{end}"] for end in ("", "_low", "_high"))
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def line(name: str, folder: Path, steps: int, seed: int) -> list[str]:
    """A row of the table."""
    rows = train(folder, overrides(name, steps, seed))
    told = summary(folder)
    own, reference = (statistics.mean(r.get(f"rollout/sequences/{s}", 0) for r in rows[1:]) for s in SOURCES)
    return [
        f"`{name}`" + ("*" if name in SUITED else ""),
        accuracy(told["first"]),
        accuracy(told["last"]),
        f"{told['last']['total/seconds']:.0f}",
        f"{median(rows, 'time/step'):.2f}",
        f"{own:.0f}" + (f" + {reference:.0f}" if reference else ""),
        f"{told['last']['memory/peak_gib']:.2f}",
    ]


def main() -> None:
    """Run what is missing and print the table."""
    given = settings(steps="120", seed="0", only="", out="runs/algorithms")
    steps, seed = int(given["steps"]), int(given["seed"])
    names = given["only"].split(",") if given["only"] else NAMES
    told = []
    for name in names:
        told.append(line(name, Path(given["out"]).resolve() / f"{name}-{steps}-{seed}", steps, seed))
        print(*told[-1], sep="  ", flush=True)
    header = ["algorithm", "accuracy, step 0", f"accuracy, step {steps}", "seconds", "s/step"]
    print(table([*header, "sequences/step", "peak GiB"], told))


if __name__ == "__main__":
    main()
