"""Packed, padded and plain forwards of Hugging Face models give the same numbers and gradients."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from rlvr.engine.models import LanguageModel
from rlvr.engine.packing import Packed
from tests.engine.models import MODEL, hardware, saved
from tests.engine.test_packing import batch_of

ROWS = (([5, 6, 7], [8, 9, 1]), ([10], [11, 12, 13, 14, 1]), ([15, 16, 17, 18, 19], [1]), ([20, 21], [22, 1]))


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "llama"])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("attention", ["packed", "padded"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_logprobs_and_gradients_equal_one_sequence_at_a_time(tmp_path, family, tied, attention, checkpointing):
    folder = saved(tmp_path / "model", family, tied)
    plain = AutoModelForCausalLM.from_pretrained(folder)
    wanted, total = torch.zeros(4, 5), 0.0
    for row, (prompt, completion) in enumerate(ROWS):
        logits = plain(torch.tensor([prompt + completion])).logits[0, len(prompt) - 1 : -1] / 0.7
        logprobs = torch.log_softmax(logits, -1).gather(1, torch.tensor(completion)[:, None])[:, 0]
        wanted[row, : len(completion)] = logprobs.detach()
        total = total + (logprobs * torch.arange(1, len(completion) + 1)).sum()
    total.backward()

    model = LanguageModel(folder, MODEL, hardware(attention=attention, gradient_checkpointing=checkpointing))
    model.train()
    packed = Packed.of(batch_of(*ROWS), torch.device("cpu"))
    logprobs_BT = packed.unpacked(model(packed, 0.7)["logprobs_BT"])
    torch.testing.assert_close(logprobs_BT.detach(), wanted, rtol=1e-5, atol=1e-6)
    (logprobs_BT * torch.arange(1, 6)).sum().backward()
    theirs = dict(plain.named_parameters())
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, theirs[name.removeprefix("hf.")].grad, rtol=1e-4, atol=1e-5)
