"""A step of this project against a step of TRL's GRPOTrainer: same model, prompts, lengths, precision and machine.

    pip install 'rlvr[bench]'
    python scripts/bench/peer.py [work=tiny|smollm2] [steps=] [runs=] [micro=] [overrides of rlvr train ...]

Each side runs in processes of its own, in turn, `runs` times: GRPO without a KL penalty, one update per step, AdamW.
TRL samples with transformers, which is faster than vLLM on a CPU for such small models; `micro` is its
`per_device_train_batch_size`, each of which is a side.  The first two steps of a run start caches.  Completions end
where the model ends them: the tokens that each side sampled are told.  Peak memory is that of the process that trains.
What `rlvr train` is told holds for both sides, as far as TRL knows it too.
"""

import json
import os
import statistics
import sys
from importlib.util import find_spec
from pathlib import Path

from _measure import spread
from _runs import Row, child, settings_and_overrides, slug, steps, table, train, work

from rlvr.config import read
from rlvr.launch import environment

SKIP = 2
DEFAULTS = {
    "tiny": {"steps": "12", "runs": "2", "micro": "8,64"},
    "smollm2": {"steps": "7", "runs": "1", "micro": "8"},  # 64 takes more than 24 GiB
}


def ours(folder: Path, overrides: list[str]) -> Row:
    """Seconds of our steps, and what they are made of."""
    rows = steps(train(folder, overrides), SKIP)
    return {
        "seconds": [row["time/step"] for row in rows],
        "generate": statistics.median(row["time/generate"] for row in rows),
        "tokens": statistics.mean(row["rollout/length"] * row["rollout/sequences/policy"] for row in rows),
        "gib": rows[-1]["memory/peak_gib"],
    }


def theirs(folder: Path, micro: str) -> Row:
    """The same of TRL, on the prompts that our run in `folder` was trained on."""
    prompts = {}
    for file in sorted(folder.glob("rollouts/*.jsonl")):
        for row in map(json.loads, file.read_text().splitlines()):
            prompts[row["prompt"]] = True
    hardware = read(folder / "config.yaml").hardware
    env = environment(hardware, len(os.sched_getaffinity(0))) | {"WANDB_MODE": "disabled"}
    env.pop("MALLOC_MMAP_THRESHOLD_", None)  # it suits our sizes of micro-batches and makes this side slower
    if hardware.device == "cpu":
        env["CUDA_VISIBLE_DEVICES"] = ""
    asked = {"prompts": list(prompts), "folder": str(folder), "micro": micro, "skip": SKIP}
    return child("_trl.py", asked, env)


def line(name: str, runs: list[Row], base: list[Row]) -> list[str]:
    """A row of the table; ratios run by run."""
    medians = [[statistics.median(row["seconds"]) for row in side] for side in (base, runs)]
    faster = [a / b for a, b in zip(*medians, strict=True)]
    memory = [a["gib"] / b["gib"] for a, b in zip(base, runs, strict=True)]
    return [
        name,
        spread([value for row in runs for value in row["seconds"]]),
        spread(faster, 2),
        f"{statistics.median(row['generate'] for row in runs):.2f}",
        f"{statistics.mean(row['tokens'] for row in runs):.0f}",
        f"{max(row['gib'] for row in runs):.2f}",
        spread(memory, 2),
    ]


def main() -> None:
    """Run all sides and print the table."""
    if find_spec("trl") is None:
        sys.exit("the peer is not installed: pip install 'rlvr[bench]'")
    given, others = settings_and_overrides(work="tiny", steps="", runs="", micro="", out="runs/peer")
    given |= {name: given[name] or value for name, value in DEFAULTS[given["work"]].items()}
    overrides = ["algorithm=grpo", *work(given["work"], others), f"steps={given['steps']}"]
    told: dict[str, list[Row]] = {}
    for number in range(int(given["runs"])):
        folder = Path(given["out"]).resolve() / slug(given["work"], given["steps"], *others, str(number))
        told.setdefault("rlvr", []).append(ours(folder, overrides))
        for micro in given["micro"].split(","):
            told.setdefault(f"TRL, micro-batch {micro}", []).append(theirs(folder, micro))
    header = ["", "s/step", "rlvr over this", "of it sampling, s", "completion tokens/step", "peak GiB"]
    lines = [line(name, runs, told["rlvr"]) for name, runs in told.items()]
    print(table([*header, "rlvr over this"], lines))


if __name__ == "__main__":
    main()
