"""What ARMOR pays for its anchors over DAPO, with and without the reference store, on the embedded default.

    python scripts/bench/anchors.py [steps=24] [seed=0] [out=runs/anchors]

Every run draws each step's prompts once (`rollout.max_rounds=1`), so that all train on batches of one shape.  ARMOR
has 15 own completions and 4 tries of the reference where DAPO has 16 own ones, two changes of the sampler's weights
where DAPO has one, and a forward of the reference.  Runs that `out` holds already are not repeated.
"""

import os
import statistics
from pathlib import Path

from _runs import Row, median, settings, table, train

COMMON = ["rollout.max_rounds=1", "log.kl_every=0", "validation.every=0", "validation.test=false", "checkpoint.every=0"]
RUNS = {  # overrides, and the run whose store is already there
    "dapo": (["algorithm=dapo"], None),
    "armor, no store": (["algorithm=armor", "rollout.reference_store=false"], None),
    "armor, empty store": (["algorithm=armor"], None),
    "armor, empty store, 8 steps ahead": (["algorithm=armor", "rollout.reference_prefetch=8"], None),
    "armor, full store": (["algorithm=armor"], "armor, empty store"),
}


def run(name: str, out: Path, steps: int, seed: int) -> list[Row]:
    """One run, with a user's cache of its own or that of an earlier run; the model comes out the same in all."""
    overrides, before = RUNS[name]
    os.environ["XDG_CACHE_HOME"] = str(out / "cache" / (before or name).replace(",", "").replace(" ", "-"))
    common = [*COMMON, f"steps={steps}", f"seed={seed}", "hardware.threads=1"]
    return train(out / f"{name.replace(',', '').replace(' ', '-')}-{steps}-{seed}", [*common, *overrides])


def main() -> None:
    """Run what is missing and print the table."""
    given = settings(steps="24", seed="0", out="runs/anchors")
    steps, seed, out = int(given["steps"]), int(given["seed"]), Path(given["out"]).resolve()
    told = {name: run(name, out, steps, seed) for name in RUNS}
    plain = median(told["dapo"], "time/step")
    lines = []
    for name, rows in told.items():
        seconds = [row["time/step"] for row in rows if row["step"] > 3]
        low, middle, high = statistics.quantiles(seconds, n=4)
        mean = statistics.mean(seconds)
        parts = [f"{median(rows, f'time/{phase}') * 1e3:.0f}" for phase in ("generate", "transfer", "score", "update")]
        drawn = statistics.mean(row.get("rollout/sequences/reference", 0.0) for row in rows if row["step"] > 3)
        lines.append([name, f"{middle:.2f} ({low:.2f} to {high:.2f})", f"{middle / plain:.2f}", f"{mean:.2f}"])
        lines[-1] += [*parts, f"{drawn:.0f}"]
    header = ["run", "s/step: median (quartiles)", "over dapo", "mean", "generate ms", "transfer ms", "score ms"]
    print(table([*header, "update ms", "reference completions/step"], lines))


if __name__ == "__main__":
    main()
