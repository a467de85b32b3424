"""The parts of steps that a run has done, each alone: `python _parts.py ASKED.json ANSWER.json`, for `floor.py`.

Asked are `folder` of the run, `steps` of it, `rounds`, `layouts`, and whether to `profile` the first of them, or to try
`sizes` of micro-batches on it.
"""

import json
import sys
import time
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from _measure import Peak, matmul_tflops, seconds

from rlvr.algorithms import ALGORITHMS
from rlvr.batch import Batch
from rlvr.clock import Clock
from rlvr.config import read
from rlvr.data.template import stop_ids
from rlvr.engine.engines import Engines, Speaker
from rlvr.engine.models import ATTENTION, end_tokens, load_tokenizer, model_folder
from rlvr.engine.packing import Packed, piece
from rlvr.engine.sampler import Decoding, Order
from rlvr.plan.shapes import shape_of
from rlvr.records import Completion, Prompt, Verdict
from rlvr.rollout.seeds import seed_of
from rlvr.trainer.display import Display
from rlvr.trainer.setup import examples, load_prompts
from rlvr.world import World

LAYOUTS = {"packed, shared": ("packed", True), "packed, copied": ("packed", False), "padded": ("padded", False)}
KINDS = {  # of operations, by what is in their names; the first that fits
    "attention": ("scaled_dot_product", "flash_attention"),
    "products": ("aten::mm", "aten::addmm", "aten::bmm", "aten::linear", "mkldnn"),
    "optimizer": ("foreach", "addcdiv", "addcmul", "lerp", "Optimizer"),
    "copies and indices": ("index", "gather", "scatter", "copy_", "cat", "clone", "select", "slice", "nonzero"),
    "element-wise": ("exp", "mul", "add", "sub", "div", "sum", "silu", "sigmoid", "rsqrt", "pow", "mean", "amax"),
}


class Bench:
    """The engines of a run, used one at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.config = folder, read(folder / "config.yaml")
        config = self.config
        if config.hardware.threads:
            torch.set_num_threads(config.hardware.threads)
        self.device = config.hardware.device
        self.peak_before = matmul_tflops(self.device, config.hardware.dtype)
        self.tokenizer = load_tokenizer(config.model)
        prompts = load_prompts(config, self.tokenizer, Display(0, enabled=False))
        where = model_folder(config.model, examples(prompts["train"], self.tokenizer), lambda share: None)
        ends = stop_ids(self.tokenizer, end_tokens(where, config.model.trust_remote_code), config.model.stop)
        world = World.from_env(self.device, 1800.0)
        self.algorithm = ALGORITHMS[config.algorithm.name](config.algorithm)
        self.engines = Engines(self.algorithm, Speaker(where, self.tokenizer, ends), config, world, Clock())
        self.sampler, self.learner = self.engines.sampler, self.engines.learners["policy"]
        rollout = config.rollout
        self.decoding = Decoding(
            temperature=rollout.temperature, top_p=rollout.top_p, max_tokens=rollout.max_tokens, source="policy"
        )

    def rollouts(self, step: int) -> list[dict[str, Any]]:
        """What the run has sampled in a step."""
        rows = map(json.loads, (self.folder / "rollouts" / "rank0.jsonl").read_text().splitlines())
        return [row for row in rows if row["step"] == step]

    def orders(self, step: int) -> list[Order]:
        """The same once more."""
        told = []
        for position, group in groupby(self.rollouts(step), key=lambda row: row["position"]):
            for k, row in enumerate(group):
                tokens = tuple(self.tokenizer(row["prompt"], add_special_tokens=False).input_ids)
                named = dict(source="bench", answer="", verifier="exact")
                prompt = Prompt(id=row["id"], text=row["prompt"], tokens=tokens, **named)
                told.append(Order(prompt, seed_of(self.config.seed, "train", position, "policy", k)))
        return told

    def transfer(self) -> float:
        """On a GPU from a sampler that is asleep, as after every step."""
        self.sampler.sleep()
        with torch.no_grad():
            return seconds(lambda: self.sampler.load(self.learner.weights(), "bench"), self.device)

    def generate(self, orders: list[Order]) -> tuple[float, list[Completion]]:
        self.sampler.forget()
        start = time.perf_counter()
        done = self.sampler.generate(orders, self.decoding, "bench")
        return time.perf_counter() - start, done

    def lay(self, layout: str) -> None:
        """Change how the learner runs tokens from now on."""
        attention, share = LAYOUTS[layout]
        self.learner.model.attention, self.learner.share = attention, share
        self.learner.model.hf.set_attn_implementation(ATTENTION[attention])

    def update(self, batch: Batch) -> dict[str, float]:
        """Forward, backward and optimizer on the batch, with the log-probs as their own loss."""
        told = dict.fromkeys(("forward", "backward"), 0.0)
        cuts = self.learner.cuts(batch, self.algorithm.unit)
        for number, rows in enumerate(cuts):
            micro = piece(batch, rows, self.algorithm.unit)
            made: dict[str, Any] = {}

            def forward(micro: Batch = micro, made: dict[str, Any] = made) -> None:
                made["loss"] = self.learner.forward(micro, self.algorithm.entropy_learns).logprobs_BT.mean()  # type: ignore[union-attr]

            def backward(made: dict[str, Any] = made, last: bool = number == len(cuts) - 1) -> None:
                self.learner.backward(made["loss"], last)

            told["forward"] += seconds(forward, self.device)
            told["backward"] += seconds(backward, self.device)
        return told | {"optimizer": seconds(lambda: self.learner.update(self.config.optim.lr), self.device)}

    def batch(self, orders: list[Order], done: list[Completion]) -> Batch:
        verdicts = [Verdict(score=float(i % 2)) for i in range(len(done))]
        limit, group = self.config.rollout.max_tokens, self.config.algorithm.group
        return Batch.of([o.prompt for o in orders], done, verdicts, group=group, limit=limit)

    def step(self, step: int, rounds: int, layouts: list[str]) -> dict[str, Any]:
        """Seconds of each part, round by round."""
        orders, told = self.orders(step), {"transfer": [self.transfer() for _ in range(rounds)]}
        sampled = [self.generate(orders) for _ in range(rounds)]
        told["generate"] = [spent for spent, _ in sampled]
        self.sampler.sleep()
        batch = self.batch(orders, sampled[0][1])
        told["score"] = [seconds(lambda: self.learner.score(batch), self.device) for _ in range(rounds)]
        updates = {}
        for layout in layouts:
            self.lay(layout)
            updates[layout] = [self.update(batch) for _ in range(rounds)]
        self.lay(layouts[0])
        run = [tuple(row["tokens"]) for row in self.rollouts(step)]
        same = sum(a == b.tokens for a, b in zip(run, sampled[0][1], strict=True)) / len(run)
        return {"seconds": told, "updates": updates, "same": same, **self.flops(batch)}

    def flops(self, batch: Batch) -> dict[str, float]:
        """Of the matrices that tokens are multiplied by, with every prompt once; attention's products are left out."""
        shape, packed = shape_of(self.config.model), Packed.of(batch, torch.device("cpu"), share=True)
        tokens, predicted = len(packed.ids_N), len(packed.target_M)
        forward = 2.0 * (shape.body * tokens + shape.head * predicted)
        return {"forward_flops": forward, "tokens": predicted, "all_tokens": tokens}

    def sizes(self, step: int, sizes: list[int], rounds: int) -> dict[int, dict[str, Any]]:
        """Seconds of an update in micro-batches of at most so many tokens, and the memory on top, round by round."""
        orders = self.orders(step)
        self.transfer()
        batch = self.batch(orders, self.generate(orders)[1])
        self.sampler.sleep()
        told: dict[int, dict[str, Any]] = {size: {"seconds": [], "bytes": []} for size in sizes}
        for number in range(rounds + 1):  # the first one makes the moments
            for size in sizes if number else sizes[:1]:
                self.learner.most_tokens = size
                with Peak(self.device) as peak:
                    spent = sum(self.update(batch).values())
                if number:
                    told[size]["pieces"] = len(self.learner.cuts(batch, self.algorithm.unit))
                    told[size]["seconds"].append(spent)
                    told[size]["bytes"].append(peak.bytes)
        return told

    def profile(self, step: int) -> dict[str, float]:
        """Seconds of an update by kind of operation, on the processor that queues them and on the device."""
        orders = self.orders(step)
        self.transfer()
        batch = self.batch(orders, self.generate(orders)[1])
        self.sampler.sleep()
        self.update(batch)
        with torch.profiler.profile() as profiled:
            self.update(batch)
        told = dict.fromkeys([*KINDS, "other"], 0.0)
        for event in profiled.key_averages():
            spent = event.self_device_time_total if self.device == "cuda" else event.self_cpu_time_total
            kind = next((kind for kind, names in KINDS.items() if any(name in event.key for name in names)), "other")
            told[kind] += spent / 1e6
        return told


def main(asked: str, answer: str) -> None:
    given = json.loads(Path(asked).read_text())
    bench = Bench(Path(given["folder"]))
    if given.get("profile"):
        told: dict[str, Any] = bench.profile(given["steps"][0])
    elif given.get("sizes"):
        told = {"sizes": bench.sizes(given["steps"][0], given["sizes"], given["rounds"])}
    else:
        bench.step(given["steps"][0], 1, given["layouts"][:1])  # starts caches
        told = {"steps": [bench.step(step, given["rounds"], given["layouts"]) for step in given["steps"]]}
        told["tflops"] = bench.peak_before + matmul_tflops(bench.device, bench.config.hardware.dtype)
    Path(answer).write_text(json.dumps(told))
    bench.engines.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
