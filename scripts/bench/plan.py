"""`rlvr plan` against runs on this machine's CPU: memory at its peak, seconds by phase.

    python scripts/bench/plan.py [steps=6] [only=tiny,smollm2] [out=runs/plan]

The peak of matrix products, the memory's bandwidth and the cost of a layer on few tokens are measured before and after
each run, by wall clock, so that a machine that does other things slows both sides; times are medians over the steps
after the first.  What libraries take, what the sampler's steps and each tensor cost beside the model, and how much of
the peak an update reaches are taken from three runs (marked *); all others are predictions.
"""

import json
import statistics
import time as clock
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from _runs import Row, settings, table, train
from transformers import Qwen2Config, Qwen2ForCausalLM

from rlvr.config import compose
from rlvr.engine.models import load_tokenizer
from rlvr.plan.fit import room_of
from rlvr.plan.memory import GIB, memory
from rlvr.plan.shapes import shape_of
from rlvr.plan.time import Time, time
from rlvr.plan.work import Work, expected
from rlvr.schema.machine import MachineConfig
from rlvr.schema.train import TrainConfig

COMMON = [
    *("hardware.threads=1", "validation.every=0", "validation.rows=2", "validation.test=false"),
    *("checkpoint.every=0", "checkpoint.best=false", "checkpoint.model=false", "log.kl_every=0", "log.rollouts=true"),
]
SMOLLM2 = ["model=smollm2_135m", "data=gym", "data.max_prompt_tokens=192"]
UNTAUGHT = ["model.warm_updates=0", "model.hidden=256", "model.layers=8"]
RUNS: dict[str, list[str]] = {
    "tiny, 4 x 4 *": ["rollout.prompts=4", "algorithm.group=4"],
    "tiny, 32 x 16 *": ["rollout.prompts=32"],
    "tiny, ZeRO 2, reference": ["hardware.zero=2", "algorithm.kl_coef=0.001", "rollout.max_tokens=16"],
    "tiny, 8 layers of 256 *": [*UNTAUGHT, "rollout.max_tokens=64", "rollout.prompts=8"],
    "smollm2, 4 x 4, 32 tokens": [*SMOLLM2, "rollout.prompts=4", "algorithm.group=4", "rollout.max_tokens=32"],
    "smollm2, checkpointing, small chunks": [
        *(*SMOLLM2, "rollout.prompts=2", "algorithm.group=4", "rollout.max_tokens=24", "hardware.head_chunk=64"),
        *("hardware.gradient_checkpointing=true", "hardware.tokens_per_micro_batch=216"),
    ],
    "smollm2, ZeRO 2, 2 updates": [
        *(*SMOLLM2, "rollout.prompts=2", "algorithm.group=4", "rollout.max_tokens=24", "hardware.zero=2"),
        *("algorithm.minibatches=2", "hardware.tokens_per_micro_batch=216"),
    ],
}
PHASES = {
    "generate": "time/generate",
    "transfer": "time/transfer",
    "score": "time/score",
    "forward": "time/update/forward",
    "backward": "time/update/backward",
    "optimizer": "time/update/optimizer",
}


@dataclass(frozen=True)
class Rates:
    """What this machine does now, by wall clock."""

    tflops: float
    bandwidth: float  # GB/s
    layer: float  # microseconds

    def mean(self, other: "Rates") -> "Rates":
        """Of before and after."""
        return Rates(*((a + b) / 2 for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))


@dataclass(frozen=True)
class Measured:
    """One run, and the plan's view of it with this machine's rates."""

    config: TrainConfig
    rates: Rates
    rows: list[Row]

    def with_machine(self, machine: MachineConfig) -> TrainConfig:
        """The configuration with what was measured of the machine."""
        own = replace(machine, bandwidth=self.rates.bandwidth, layer_overhead=self.rates.layer)
        return replace(self.config, hardware=replace(self.config.hardware, peak_tflops=self.rates.tflops, machine=own))

    def seconds(self, phase: str) -> float:
        """Median of the steps after the first."""
        return statistics.median(row.get(PHASES[phase], 0.0) for row in self.rows[2:])

    def planned(self, machine: MachineConfig) -> Time:
        """Seconds by phase, as the plan tells them."""
        config = self.with_machine(machine)
        return time(Work.of(config, 1), shape_of(config.model), room_of(config.hardware).device)

    @property
    def peak(self) -> float:
        """GiB."""
        return self.rows[-1]["memory/peak_gib"]


def rates(seconds: float = 2.0) -> Rates:
    """Of one thread, each as the mean over a while."""
    torch.set_num_threads(1)
    a, b = torch.randn(512, 576), torch.randn(576, 1536)
    big, vector = torch.randn(32_768, 1024), torch.randn(1024)
    heads = dict(num_attention_heads=4, num_key_value_heads=4)
    shape = Qwen2Config(vocab_size=8, hidden_size=64, intermediate_size=128, num_hidden_layers=8, **heads)
    model, ids = Qwen2ForCausalLM(shape).model, torch.zeros(1, 8, dtype=torch.long)
    product = _each(lambda: torch.mm(a, b), seconds)
    read = _each(lambda: torch.mv(big, vector), seconds)
    layers = _each(lambda: model(ids, use_cache=False), seconds)
    return Rates(2 * 512 * 576 * 1536 / product / 1e12, big.nbytes / read / 1e9, layers / 8 * 1e6)


def _each(work: Callable[[], object], seconds: float) -> float:
    """Median wall clock of one call."""
    work()
    told, end = [], clock.perf_counter() + seconds
    while clock.perf_counter() < end:
        start = clock.perf_counter()
        work()
        told.append(clock.perf_counter() - start)
    return statistics.median(told)


def measure(name: str, folder: Path, steps: int) -> Measured:
    """Run, or read a run that is there."""
    overrides = [*COMMON, *RUNS[name], f"steps={steps}"]
    before = rates()
    rows = train(folder, overrides)
    kept = folder / "rates.json"
    if not kept.exists():
        kept.write_text(json.dumps(vars(before.mean(rates()))))
    config = compose(overrides)
    prompt, completion = lengths(config, folder)
    plan = replace(config.plan, prompt_tokens=prompt, completion_tokens=completion)
    return Measured(replace(config, plan=plan), Rates(**json.loads(kept.read_text())), rows)


def lengths(config: TrainConfig, folder: Path) -> tuple[float, float]:
    """Mean tokens of prompts and completions."""
    tokenizer = load_tokenizer(config.model)
    lines = [json.loads(x) for file in folder.glob("rollouts/*.jsonl") for x in file.read_text().splitlines()]
    prompts = {line["id"]: len(tokenizer(line["prompt"]).input_ids) for line in lines}
    return statistics.mean(prompts.values()), statistics.mean(len(line["tokens"]) for line in lines)


def calibrated(small: Measured, large: Measured, wide: Measured) -> MachineConfig:
    """What has no measurement of its own: three runs and five unknown numbers, each from what it decides."""
    machine = replace(
        small.config.hardware.machine, overhead=1e-9, decode_overhead=0.0, sequence_overhead=0.0, tensor_overhead=0.0
    )
    machine = replace(machine, matmul_efficiency=efficiency(wide, machine))
    (one, steps_1, alive_1), (two, steps_2, alive_2) = (decoding(run, machine) for run in (small, large))
    sequence = max(0.0, (two / steps_2 - one / steps_1) / (alive_2 - alive_1))
    tensors = shape_of(small.config.model).tensors
    return replace(
        machine,
        overhead=small.peak - planned_gib(small, machine),
        decode_overhead=max(0.0, one / steps_1 - alive_1 * sequence) * 1e6,
        sequence_overhead=sequence * 1e6,
        tensor_overhead=small.seconds("transfer") / tensors * 1e6,
    )


def efficiency(run: Measured, machine: MachineConfig) -> float:
    """Of products in an update, with all that passes over activations between them counted as theirs."""
    full, half = (update(run, replace(machine, matmul_efficiency=share)) for share in (1.0, 0.5))
    products = half - full
    return products / (run.seconds("forward") + run.seconds("backward") - (full - products))


def update(run: Measured, machine: MachineConfig) -> float:
    """Planned seconds of forward and backward."""
    told = run.planned(machine)
    return told.seconds("forward") + told.seconds("backward")


def decoding(run: Measured, machine: MachineConfig) -> tuple[float, float, float]:
    """Seconds of generation beyond the model's own, steps, and sequences alive."""
    config = run.with_machine(machine)
    work, mean = Work.of(config, 1), expected(config)
    steps = float(mean.longest)
    spent = max(0.0, run.seconds("generate") - run.planned(machine).seconds("generate"))
    return spent, steps, work.numbers.sequences * mean.completion / steps


def planned_gib(run: Measured, machine: MachineConfig) -> float:
    """The peak of memory."""
    config = run.with_machine(machine)
    room = room_of(config.hardware)
    return memory(Work.of(config, 1), shape_of(config.model), expected(config), room.device).peak / GIB


def line(name: str, run: Measured, machine: MachineConfig) -> list[str]:
    """A row of the table: planned / measured."""
    told = run.planned(machine)
    cells = [name, _pair(planned_gib(run, machine), run.peak)]
    pairs = [(told.seconds(phase), run.seconds(phase)) for phase in PHASES]
    cells += [_pair(*pair) for pair in pairs]
    return [*cells, _pair(sum(a for a, _ in pairs), sum(b for _, b in pairs))]


def _pair(planned: float, measured: float) -> str:
    if measured < 0.01:
        return f"{planned:.2f} / {measured:.2f}"
    return f"{planned:.2f} / {measured:.2f} = {planned / measured:.2f}"


def main() -> None:
    """Run what is missing and print the table."""
    given = settings(steps="6", only="tiny,smollm2", out="runs/plan")
    names = [name for name in RUNS if name.endswith("*") or name.startswith(tuple(given["only"].split(",")))]
    runs: dict[str, Measured] = {}
    for name in names:
        folder = "".join(c if c.isalnum() else "_" for c in name).strip("_")
        runs[name] = measure(name, Path(given["out"]).resolve() / folder, int(given["steps"]))
        print(name, runs[name].rates, runs[name].peak, flush=True)
    machine = calibrated(*(run for name, run in runs.items() if name.endswith("*")))
    print(machine)
    print(table(["planned / measured", "peak GiB", *PHASES, "sum"], [line(n, r, machine) for n, r in runs.items()]))


if __name__ == "__main__":
    main()
