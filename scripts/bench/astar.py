"""The second stage of A*-PO against GRPO with 8 completions: seconds per prompt and memory at its peak.

    python scripts/bench/astar.py [work=tiny|smollm2] [runs=3] [steps=8] [prompts=16] [overrides of rlvr train ...]

Both take steps on the same prompts.  Their runs alternate, `runs` of each; the first three steps of each start caches.
A first run of A*-PO, which is not measured, fills the store of reference completions, so that the first stage costs the
measured ones nothing; its seconds are told apart.  Weights stay what they are, so that all steps have work of one kind.
"""

import os
import statistics
import time
from pathlib import Path

from _measure import spread
from _runs import PHASES, Row, settings_and_overrides, slug, steps, table, train, work

SIDES = {
    "GRPO, 8 completions": ["algorithm=grpo", "algorithm.group=8"],
    "A*-PO, 1 completion": ["algorithm=astar_po", "algorithm.group=1"],
}
SKIP = 3


def main() -> None:
    """Run what is missing and print the table."""
    defaults = dict(work="tiny", runs="3", steps="8", prompts="16", out="runs/astar")
    given, others = settings_and_overrides(**defaults)
    out = Path(given["out"]).resolve()
    common = [*work(given["work"], others), f"rollout.prompts={given['prompts']}"]
    os.environ["XDG_CACHE_HOME"] = str(out / "cache")  # a store of our own, empty at first

    def run(name: str, number: int, count: str) -> list[Row]:
        folder = out / slug(given["work"], given["prompts"], count, *others, name, str(number))
        return train(folder, [*common, *SIDES[name], f"steps={count}"])

    *_, last = SIDES
    start = time.perf_counter()
    run(last, 0, "1")
    first_stage = time.perf_counter() - start
    told: dict[str, list[list[Row]]] = {name: [] for name in SIDES}
    for number in range(1, int(given["runs"]) + 1):
        for name in SIDES:
            told[name].append(run(name, number, given["steps"]))
    report({name: [steps(rows, SKIP) for rows in runs] for name, runs in told.items()}, int(given["prompts"]))
    print(f"\nThe run that fills the store, from command to end, one step included: {first_stage:.1f} s.")


def report(told: dict[str, list[list[Row]]], prompts: int) -> None:
    """Medians over all steps of all runs; ratios run by run."""
    base = next(iter(told))
    lines = []
    for name, runs in told.items():
        seconds = [row["time/step"] / prompts for rows in runs for row in rows]
        each = [statistics.median(row["time/step"] for row in rows) for rows in runs]
        first = [statistics.median(row["time/step"] for row in rows) for rows in told[base]]
        memory, most = ([rows[-1]["memory/peak_gib"] for rows in side] for side in (runs, told[base]))
        parts = [
            f"{statistics.median(row.get(f'time/{phase}', 0.0) for rows in runs for row in rows):.3f}"
            for phase in PHASES
        ]
        lines.append([name, spread(seconds), spread([a / b for a, b in zip(first, each, strict=True)], 2), *parts])
        lines[-1] += [spread(memory, 2), spread([a / b for a, b in zip(memory, most, strict=True)], 2)]
    header = ["", "s per prompt", f"{base} over this", *(f"{phase}, s/step" for phase in PHASES)]
    print(table([*header, "peak GiB", f"over {base}"], lines))


if __name__ == "__main__":
    main()
