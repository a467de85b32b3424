"""An update in micro-batches of several sizes: seconds, and the memory that comes on top.

    python scripts/bench/micro_batches.py [work=smollm2|tiny] [sizes=576,1024,2048,8192] [rounds=3] [steps=2] [...]

The sizes take turns on the last step of one run, in a process of their own.  Memory is what the process has at most
during an update over what it had before; on a CPU that includes blocks that were freed and that the allocator keeps, so
that the first size is measured first, with the least of them.  Other arguments are for `rlvr train`.
"""

import os
from pathlib import Path

from _measure import GIB, ratios, spread
from _runs import child, settings_and_overrides, slug, steps, table, train, work

from rlvr.config import compose
from rlvr.launch import environment


def main() -> None:
    """Run, measure, print."""
    defaults = dict(work="smollm2", sizes="576,1024,2048,8192", rounds="3", steps="2", out="runs/micro_batches")
    given, others = settings_and_overrides(**defaults)
    overrides = ["algorithm=grpo", *work(given["work"], others), f"steps={given['steps']}"]
    folder = Path(given["out"]).resolve() / slug(given["work"], given["steps"], *others)
    rows = steps(train(folder, overrides), int(given["steps"]) - 1)
    sizes = [int(size) for size in given["sizes"].split(",")]
    asked = {"folder": str(folder), "steps": [rows[-1]["step"]], "rounds": int(given["rounds"]), "sizes": sizes}
    env = environment(compose(overrides).hardware, len(os.sched_getaffinity(0)))
    told = child("_parts.py", asked, env)["sizes"]
    first = told[str(sizes[0])]["seconds"]
    lines = []
    for size, found in told.items():
        own = found["seconds"]
        lines.append([size, str(found["pieces"]), spread(own), ratios(own, first), f"{max(found['bytes']) / GIB:.2f}"])
    print(table(["tokens at most", "micro-batches", "update, s", f"over {sizes[0]}", "memory, GiB"], lines))


if __name__ == "__main__":
    main()
