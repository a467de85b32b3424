"""Seconds from the command to the first step, and in what they pass: cores' seconds beside the wall clock.

    python scripts/bench/start.py [work=tiny|smollm2] [runs=5] [imports=0] [overrides of rlvr train ...]

A run before, which is not measured, fills the caches of models and files.  Phases end where the run says what it does
next; the first step begins when its engines are there.  CPU seconds are those of all its processes, user and system,
which other work on the machine changes less than it changes the clock.  With `imports` the modules that took longest of
their own to import are listed, so many.
"""

import os
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from _measure import spread
from _runs import settings_and_overrides, table, work

from rlvr.trainer.jsonl import read_rows

PHASES = {  # by the line that ends them
    "command line": "run ",
    "start of the rank, its imports": "loading data",
    "data": "starting verifiers",
    "verifiers": "preparing the model",
    "model": "starting the engines",
}
ENGINES, STEP = "engines", "first step"
TICK = 0.02  # seconds between two looks
IMPORTS = "import rlvr.worker, rlvr.trainer.loop, vllm; from vllm import LLM"


@dataclass
class Start:
    """Moments of one start: (seconds since the command, CPU seconds until then), by the phase that ended."""

    at: dict[str, tuple[float, float]] = field(default_factory=dict)

    def lasted(self, index: int) -> dict[str, float]:
        """By phase; 0 is the clock, 1 the CPU."""
        before, told = 0.0, {}
        for name, moment in self.at.items():
            told[name], before = moment[index] - before, moment[index]
        return told


def cpu_seconds(root: int) -> float:
    """Of a process and all below it, those that have ended included."""
    fields: dict[int, tuple[int, float]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            told = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            continue
        fields[int(stat.parent.name)] = int(told[1]), sum(map(int, told[11:15]))
    family = found = {root}
    while found:
        found = {pid for pid, (parent, _) in fields.items() if parent in family} - family
        family = family | found
    return sum(fields[pid][1] for pid in family if pid in fields) / os.sysconf("SC_CLK_TCK")


def start(folder: Path, overrides: list[str]) -> Start:
    """One run of one step.

    Raises:
        SystemExit: with the end of its output, if it fails.
    """
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "rlvr.cli", "train", f"hydra.run.dir={folder}", "run.name=start", "log.wandb=off"]
    told, lines, begin = Start(), [], time.perf_counter()
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    process = subprocess.Popen([*command, *overrides, "steps=1"], **pipes)  # type: ignore[call-overload]

    def listen() -> None:
        for line in process.stdout:
            lines.append(line)
            for name, words in PHASES.items():
                if name not in told.at and line.startswith(words):
                    told.at[name] = time.perf_counter() - begin, cpu_seconds(process.pid)

    listener = threading.Thread(target=listen)
    listener.start()
    metrics, stepped = folder / "metrics.jsonl", (0.0, 0.0)
    while process.poll() is None and not stepped[0]:
        time.sleep(TICK)
        if metrics.exists() and '"time/step"' in metrics.read_text():
            stepped = time.perf_counter() - begin, cpu_seconds(process.pid)
    code = process.wait()
    listener.join()
    if code or len(told.at) < len(PHASES) or not metrics.exists():
        sys.exit(f"the run failed:\n{''.join(lines)[-3000:]}")
    step = next(row["time/step"] for row in read_rows(metrics) if "time/step" in row)
    if stepped[0]:
        told.at[ENGINES] = stepped[0] - step, stepped[1] - step  # the step has about one core
        told.at[STEP] = stepped
    return told


def imports(count: int) -> str:
    """The modules with most time of their own, and the packages with most in all."""
    env = os.environ | {"DS_ACCELERATOR": "cpu"}
    done = subprocess.run([sys.executable, "-X", "importtime", "-c", IMPORTS], capture_output=True, text=True, env=env)
    own: dict[str, float] = {}
    packages: dict[str, float] = {}
    for spent, name in re.findall(r"import time:\s+(\d+) \|\s+\d+ \|\s*(\S+)", done.stderr):
        own[name] = int(spent) / 1e6
        package = name.split(".")[0]
        packages[package] = packages.get(package, 0.0) + own[name]
    lines = []
    for each in (packages, own):
        lines += [[name, f"{each[name]:.2f}"] for name in sorted(each, key=lambda n: -each[n])[:count]]
    return table(["package, then module", "s of its own"], lines)


def main() -> None:
    """Start often, print the table."""
    given, others = settings_and_overrides(work="tiny", runs="5", imports="0", out="runs/start")
    folder = Path(given["out"]).resolve() / "run"
    overrides = ["algorithm=grpo", *work(given["work"], others)]
    start(folder, overrides)
    starts = [start(folder, overrides) for _ in range(int(given["runs"]))]
    lines = []
    for name in starts[0].at:
        clock, cpu = ([s.lasted(i)[name] for s in starts if name in s.at] for i in (0, 1))
        lines.append([name, spread(clock, 2), spread(cpu, 2)])
    ends = [[s.at[ENGINES][i] for s in starts if ENGINES in s.at] for i in (0, 1)]
    lines.append(["**until the first step begins**", *(spread(end, 2) for end in ends)])
    print(table(["phase", "seconds", "CPU seconds"], lines))
    print(f"\n{len(starts)} starts; median {statistics.median(ends[0]):.1f} s by the clock")
    if int(given["imports"]):
        print("\n" + imports(int(given["imports"])))


if __name__ == "__main__":
    main()
