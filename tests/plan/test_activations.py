"""What a forward saves is counted to the byte; what comes and goes, within a few percent, as torch allocates it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from rlvr.batch import Batch
from rlvr.engine.head import WORDS, ChunkedHead
from rlvr.engine.models import LanguageModel
from rlvr.engine.packing import Packed
from rlvr.plan.activations import (
    TILE_WORDS,
    Pass,
    backward_bytes,
    forward_bytes,
    head_backward_bytes,
    head_forward_bytes,
    saved_bytes,
)
from rlvr.plan.shapes import Shape
from rlvr.plan.work import Micro
from rlvr.records import Completion, Prompt, Verdict
from tests.engine.models import MODEL, SHAPE, hardware, saved
from tests.plan.meter import Meter

KINDS = {"qwen2": dict(qkv_bias=True), "qwen3": dict(qk_norm=True), "llama": {}}


def shape(family: str) -> Shape:
    """That of `tests.engine.models.SHAPE`."""
    kind: dict[str, Any] = KINDS[family]
    return Shape(layers=2, width=128, mlp=48, heads=4, kv_heads=2, head_dim=32, words=64, **kind)


def packed(count: int = 6) -> Packed:
    """Sequences of 7 to 7 + count tokens."""
    prompts = [
        Prompt(id=str(i), source="s", text="", tokens=(5,) * (4 + i), answer="", verifier="x") for i in range(count)
    ]
    done = [Completion(tokens=(7,) * 3, logprobs=(0.0,) * 3, text="", truncated=False, source="policy")] * count
    return Packed.of(Batch.of(prompts, done, [Verdict(score=1.0)] * count, group=1, limit=3), torch.device("cpu"))


def micro_of(told: Packed) -> Micro:
    """Its numbers."""
    return Micro(
        sequences=len(told.length_n),
        tokens=len(told.ids_N),
        padded=told.pad_nL.numel(),
        predicted=len(told.target_M),
    )


def way(dtype: str = "fp32", **changes: Any) -> Pass:
    return Pass(
        **dict(
            bytes=4 if dtype == "fp32" else 2, attention="packed", checkpointing=False, chunk=64, entropy_learns=False
        )
        | changes
    )


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("family", KINDS)
def test_saved_bytes_are_those_that_autograd_keeps(
    family: str, checkpointing: bool, dtype: str, tmp_path: Path
) -> None:
    told = packed()
    keys = hardware(dtype=dtype, gradient_checkpointing=checkpointing)
    model = LanguageModel(saved(tmp_path, family, tied=False), MODEL, keys)
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    found: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in weights:
            found[tensor.untyped_storage().data_ptr()] = tensor  # held, so that no address is used twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(told, 1.0)
    measured = sum(tensor.untyped_storage().nbytes() for tensor in found.values())
    planned = saved_bytes(shape(family), micro_of(told), way(dtype, checkpointing=checkpointing))
    slack = 0 if not checkpointing else 8 * 6 * 24 + 2 * 6 * 24 * 32 * 4  # indices and angles live in closures there
    assert planned - slack <= measured <= planned


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("chunk", [200, 64])
@pytest.mark.parametrize("words", [3000, 9000])
@pytest.mark.parametrize("entropy_learns", [False, True])
def test_the_head_takes_what_is_planned(dtype: str, chunk: int, words: int, entropy_learns: bool) -> None:
    width, count = 16, 200
    kind = torch.float32 if dtype == "fp32" else torch.bfloat16
    head = ChunkedHead(torch.nn.Linear(width, words, bias=False, dtype=kind), chunk)
    hidden = torch.randn(count, width, dtype=kind, requires_grad=True)
    target = torch.randint(words, (count,))
    wide = Shape(layers=1, width=width, mlp=1, heads=1, kv_heads=1, head_dim=1, words=words)
    micro = Micro(sequences=1, tokens=count, padded=count, predicted=count)
    told = way(dtype, chunk=chunk, entropy_learns=entropy_learns)
    with Meter() as forward:
        logprobs, entropy = head(hidden, target, 1.0, entropy_learns)
    assert forward.peak == pytest.approx(head_forward_bytes(wide, micro, told), rel=0.05)
    with Meter() as backward:
        (logprobs.sum() + entropy_learns * entropy.sum()).backward()
    assert backward.peak == pytest.approx(head_backward_bytes(wide, micro, told), rel=0.05)


def test_tiles_are_those_of_the_head() -> None:
    assert TILE_WORDS == WORDS


@pytest.mark.parametrize("checkpointing", [False, True])
def test_forward_and_backward_of_a_model_take_what_is_planned(checkpointing: bool, tmp_path: Path) -> None:
    told, wide = packed(24), replace(shape("llama"), mlp=384, words=512)
    changed = LlamaConfig(**SHAPE | dict(intermediate_size=384, vocab_size=512))
    LlamaForCausalLM(changed).save_pretrained(tmp_path)
    keys = hardware(gradient_checkpointing=checkpointing, head_chunk=64)
    model = LanguageModel(str(tmp_path), MODEL, keys)
    micro, run = micro_of(told), way(checkpointing=checkpointing)
    model(told, 1.0)["logprobs_BT"].sum().backward()  # gradients of an earlier micro-batch
    with Meter() as backward:
        model(told, 1.0)["logprobs_BT"].sum().backward()
    with Meter() as forward, torch.no_grad():
        model(told, 1.0)
    at_work = max(backward_bytes(wide, micro, run), head_backward_bytes(wide, micro, run))
    assert backward.peak == pytest.approx(saved_bytes(wide, micro, run) + at_work, rel=0.08)
    assert forward.peak == pytest.approx(forward_bytes(wide, micro, run), rel=0.08)


def test_the_shape_is_that_of_the_models() -> None:
    assert (SHAPE["hidden_size"], SHAPE["intermediate_size"], SHAPE["vocab_size"]) == (128, 48, 64)
