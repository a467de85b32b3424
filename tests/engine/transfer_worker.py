"""One rank of `test_transfer.py`: perturb each tensor family, push, and compare sampler and learner."""

import json
import re
import sys
from types import SimpleNamespace

import torch

from rlvr.engine.learner import Learner
from rlvr.engine.packing import Packed
from rlvr.engine.sampler import Decoding, Order, Sampler, StaleWeights
from rlvr.records import Prompt
from rlvr.world import World
from tests.engine.learner_worker import OPTIM
from tests.engine.models import MODEL, hardware
from tests.engine.test_packing import batch_of

TOKENIZER = SimpleNamespace(decode=lambda tokens, skip_special_tokens: " ".join(map(str, tokens)))
PROMPTS = [[5, 6, 7, 8], [9, 10], [11, 12, 13]]
TEMPERATURE = 0.7


ORDERS = [
    Order(Prompt(id=str(i), source="s", text="", tokens=tuple(p), answer="", verifier="exact"), seed=i)
    for i, p in enumerate(PROMPTS)
]


def decoding(max_tokens: int) -> Decoding:
    return Decoding(temperature=TEMPERATURE, top_p=1.0, max_tokens=max_tokens, source="policy")


def gap(sampler: Sampler, learner: Learner, version: str) -> float:
    """Largest difference of log-probs on completions that the sampler draws now."""
    drawn = sampler.generate(ORDERS, decoding(6), version)
    batch = batch_of(*[(p, list(c.tokens)) for p, c in zip(PROMPTS, drawn, strict=True)])
    with torch.no_grad():
        packed = Packed.of(batch, torch.device("cpu"))
        logprobs_BT = packed.unpacked(learner.module(packed, TEMPERATURE)["logprobs_BT"])
    ours = [logprobs_BT[i, : len(c.tokens)] for i, c in enumerate(drawn)]
    return max(float((a - torch.tensor(c.logprobs)).abs().max()) for a, c in zip(ours, drawn, strict=True))


def perturb(learner: Learner, family: str) -> None:
    """Move every tensor of a family; under ZeRO-3 through a gathered view."""
    from deepspeed.runtime.zero import GatheredParameters

    noise = torch.Generator().manual_seed(len(family))
    for name, parameter in learner.model.named_parameters():
        if re.sub(r"\.\d+\.", ".*.", name) == family:
            with torch.no_grad(), GatheredParameters([parameter], modifier_rank=0, enabled=hasattr(parameter, "ds_id")):
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=noise))


def main(folder: str, zero: str, parallel: str, out: str) -> None:
    world = World.from_env("cpu", 120.0)
    settings = hardware(zero=int(zero), tensor_parallel=int(parallel))
    sampler = Sampler(folder, MODEL, settings, world, TOKENIZER, [1], longest=32)
    learner = Learner(folder, MODEL, settings, OPTIM, world, TEMPERATURE)
    told = {}
    try:
        sampler.generate([], decoding(1), "policy@0")
    except StaleWeights as error:
        told["refused"] = str(error)
    families = sorted({re.sub(r"\.\d+\.", ".*.", name) for name, _ in learner.model.named_parameters()})
    with torch.no_grad():
        sampler.load(learner.weights(), "start")
    # one rank wants to stop; engines that are shared stop together, and go on afterwards
    told["finished"] = len(sampler.generate(ORDERS, decoding(28), "start", stop=lambda: world.rank == 0))
    gaps = {"unchanged": gap(sampler, learner, "start")}
    for family in families:
        perturb(learner, family)
        with torch.no_grad():
            sampler.load(learner.weights(), family)
        gaps[family] = gap(sampler, learner, family)
    told["gaps"] = gaps
    if world.rank == 0:
        with open(out, "w") as file:
            json.dump(told, file)
    sampler.close()
    world.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
