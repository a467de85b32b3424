"""A step of `rlvr train` against the sum of its best parts, each measured alone, and against the roofline.

    python scripts/bench/floor.py [work=tiny|smollm2] [steps=9] [parts=3] [rounds=3] [layouts=all] [hardware=gpu1 ...]

A run does `steps` steps.  Then, in another process, the last `parts` of them are done in pieces: the engine alone on
the same prompts and seeds, the transfer of the weights, forward and backward in each layout of tokens, the optimizer.
The floor is the sum of each piece's least time over all `rounds` and layouts.  The peak of matrix products is measured
in that process before and after.  `layouts=run` leaves out the layouts that the run does not use.  The flops are those
of the matrices, with each prompt once and without attention.  Other arguments are for `rlvr train`;
what names a model of its own takes the place of `work`: `hardware=gpu1 model=qwen2_5_1_5b data=gsm8k` on a GPU.
"""

import os
import statistics
from pathlib import Path

from _measure import spread
from _runs import Row, child, settings_and_overrides, slug, steps, table, train, work

from rlvr.config import compose
from rlvr.launch import environment
from rlvr.plan.work import Work
from rlvr.schema.train import TrainConfig

UPDATE = ("forward", "backward", "optimizer")
RUN = {name: f"time/{name}" for name in ("transfer", "generate", "score")} | {n: f"time/update/{n}" for n in UPDATE}
LAYOUTS = ("packed, shared", "packed, copied", "padded")


def least(measured: Row) -> tuple[dict[str, float], str]:
    """The floor of one step, by part, and the layout in which its update was fastest."""
    told = {name: min(values) for name, values in measured["seconds"].items()}
    best = {}
    for layout, rounds in measured["updates"].items():
        best[layout] = {name: min(each[name] for each in rounds) for name in UPDATE}
    layout = min(best, key=lambda name: sum(best[name].values()))
    return told | best[layout], layout


def flops(config: TrainConfig, measured: Row) -> dict[str, float]:
    """Of one step by part."""
    forward = measured["forward_flops"]
    return {"generate": forward, "score": forward * passes(config), "forward": forward, "backward": 2 * forward}


def passes(config: TrainConfig) -> float:
    """Forwards of a step that only score."""
    work = Work.of(config, 1)
    return work.old_passes + work.reference_passes


def layouts_of(config: TrainConfig, which: str) -> list[str]:
    """That of the run first."""
    shares = config.hardware.attention == "packed" and config.hardware.share_prompts
    own = "packed, shared" if shares else "packed, copied" if config.hardware.attention == "packed" else "padded"
    return [own] if which == "run" else [own, *(name for name in LAYOUTS if name != own)]


def report(config: TrainConfig, rows: list[Row], told: Row) -> None:
    """Print the tables."""
    peak, floors = statistics.median(told["tflops"]), []
    for measured in told["steps"]:
        parts, layout = least(measured)
        parts["score"] *= passes(config)
        floors.append(parts)
    work = [flops(config, measured) for measured in told["steps"]]
    lines = []
    for name, metric in RUN.items():
        own, floor = (
            statistics.median(values) for values in ([r.get(metric, 0.0) for r in rows], [f[name] for f in floors])
        )
        done = statistics.median(each.get(name, 0.0) for each in work) / 1e12
        share = f"{done / own / peak:.0%}" if own and done else ""
        ratio = f"{own / floor:.2f}" if floor else ""
        lines.append([name, f"{own:.3f}", f"{floor:.3f}", ratio, f"{done:.4f}" if done else "", share])
    own = [row["time/step"] for row in rows]
    sums = [sum(floor.values()) for floor in floors]
    beside = [o - sum(row.get(metric, 0.0) for metric in RUN.values()) for o, row in zip(own, rows, strict=True)]
    lines.append(["verifying, recording, rest", f"{statistics.median(beside):.3f}", "", "", "", ""])
    pairs = [o / s for o, s in zip(own, sums, strict=True)]
    done = statistics.median(sum(each.values()) for each in work) / 1e12
    ends = [f"{done:.4f}", f"{done / statistics.median(own) / peak:.0%}"]
    lines.append(["**step**", spread(own), spread(sums), f"**{spread(pairs, 2)}**", *ends])
    print(table(["part", "run, s", "floor, s", "run / floor", "TFLOP", "MFU"], lines))
    tokens = statistics.median(m["tokens"] / o for m, o in zip(told["steps"], own, strict=True))
    print(f"\nmatmul peak {peak:.3f} TFLOP/s ({min(told['tflops']):.3f} to {max(told['tflops']):.3f})", end="; ")
    print(f"{tokens:,.0f} completion tokens/s per device; peak memory {rows[-1]['memory/peak_gib']:.2f} GiB;", end=" ")
    print(f"roofline of the step {done / peak:.3f} s; floor's update laid {layout};", end=" ")
    print(f"{statistics.mean(m['same'] for m in told['steps']):.0%} of the completions are those of the run")


def main() -> None:
    """Run, measure the parts, print."""
    defaults = dict(work="tiny", steps="9", parts="3", rounds="3", layouts="all", out="runs/floor")
    given, others = settings_and_overrides(**defaults)
    overrides = ["algorithm=grpo", *work(given["work"], others), f"steps={given['steps']}"]
    config = compose(overrides)
    folder = Path(given["out"]).resolve() / slug(given["work"], given["steps"], *others)
    rows = steps(train(folder, overrides), int(given["steps"]) - int(given["parts"]))
    asked = {"folder": str(folder), "steps": [row["step"] for row in rows], "rounds": int(given["rounds"])}
    cores = len(os.sched_getaffinity(0))
    told = child(
        "_parts.py", asked | {"layouts": layouts_of(config, given["layouts"])}, environment(config.hardware, cores)
    )
    report(config, rows, told)


if __name__ == "__main__":
    main()
