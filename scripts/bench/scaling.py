"""Where models of 1.5B to 70B stop scaling, by plan: the table of docs/scaling.md.  Nothing is run.

    python scripts/bench/scaling.py

One job of GRPO on 1 to 64 machines of eight H100, with 512 prompts x 16 completions of 2,048 tokens on average and
8,192 at most.  Each cell is the fastest of the settings that fit, of ZeRO 2 and 3, 1 to 8 ranks per sampler, and shares
of the memory for it.
"""

import itertools
from dataclasses import dataclass, replace

from _runs import table

from rlvr.config import compose
from rlvr.plan.fit import problems, room_of
from rlvr.plan.memory import TIGHT
from rlvr.plan.shapes import Shape, shape_of
from rlvr.plan.time import Time, time
from rlvr.plan.work import Work
from rlvr.schema.train import TrainConfig

MODELS = {
    "1.5B": "Qwen/Qwen2.5-1.5B",
    "7B": "Qwen/Qwen2.5-7B",
    "14B": "Qwen/Qwen2.5-14B",
    "32B": "Qwen/Qwen2.5-32B",
    "70B": "meta-llama/Llama-3.1-70B",
}
NODES = (1, 2, 4, 8, 16, 32, 64)
JOB = [
    *("hardware=gpu8", "model=qwen2_5_7b", "data=math", "rollout.prompts=512", "algorithm.group=16"),
    *("rollout.max_tokens=8192", "plan.completion_tokens=2048", "plan.prompt_tokens=256", "log.kl_every=0"),
    *("hardware.tokens_per_micro_batch=16384", "verify.workers=8"),
]
SETTINGS = [
    dict(zip(("zero", "tensor_parallel", "sampler_memory"), values, strict=True))
    for values in itertools.product((2, 3), (1, 2, 4, 8), (0.4, 0.5, 0.6, 0.7, 0.8))
]


@dataclass(frozen=True)
class Cell:
    """A model on some machines."""

    nodes: int
    zero: int
    ways: int
    time: Time

    @property
    def per_device(self) -> float:
        """Trained completion tokens per second."""
        return self.time.completion_tokens / self.time.step / (8 * self.nodes)


def cell(config: TrainConfig, shape: Shape, nodes: int) -> Cell | None:
    """The fastest setting that fits; None if none does."""
    found = []
    for setting in SETTINGS:
        machine = replace(config.hardware.machine, nodes=nodes)
        hardware = replace(config.hardware, machine=machine, **setting)
        work, room = Work.of(replace(config, hardware=hardware), 8 * nodes), room_of(hardware)
        if not problems(work, shape, room, full=True, most=TIGHT):
            told = time(work, shape, room.device)
            found.append(Cell(nodes, hardware.zero, hardware.tensor_parallel, told))
    return min(found, key=lambda c: c.time.step, default=None)


def line(name: str, nodes: int, told: Cell | None, first: Cell | None) -> list[str]:
    """A row of the table."""
    if told is None or first is None:
        return [name, str(nodes), *["does not fit"], *[""] * 7]
    step = told.time
    parts = [sum(step.seconds(p) for p in group) for group in GROUPS]
    shares = [f"{part:.1f}" for part in parts]
    scaling = f"{told.per_device / first.per_device:.0%}"
    setting = f"ZeRO {told.zero}, {told.ways} per sampler"
    return [
        name,
        str(nodes),
        setting,
        f"{step.step:.1f}",
        *shares,
        f"{told.per_device:,.0f}",
        f"{step.mfu:.1%}",
        scaling,
    ]


GROUPS = (("generate",), ("transfer",), ("score", "forward", "backward", "optimizer"))


def scaling() -> str:
    """The table, in Markdown."""
    rows = []
    for name, path in MODELS.items():
        config = compose([*JOB, f"model.path={path}"])
        shape, first = shape_of(config.model), None
        for nodes in NODES:
            told = cell(config, shape, nodes)
            first = first or told
            rows.append(line(name, nodes, told, first))
    header = ["model", "machines", "setting", "step, s", "generate", "transfer", "update"]
    return table([*header, "tokens/s per GPU", "MFU", "per GPU, of the first"], rows)


if __name__ == "__main__":
    print(scaling())
