"""Model folders that are written here, as other programs read them."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

from rlvr.engine.export import write_here
from tests.engine.models import SHAPE

TOKENIZER = SimpleNamespace(save_pretrained=lambda folder: None)


@pytest.mark.parametrize("tied", [True, False])
def test_tied_weights_have_the_embeddings_name(tmp_path: Path, tied: bool) -> None:
    model = LlamaForCausalLM(LlamaConfig(**SHAPE, tie_word_embeddings=tied))
    write_here(model, TOKENIZER, tmp_path)
    names = set(load_file(tmp_path / "model.safetensors"))
    assert "model.embed_tokens.weight" in names
    assert ("lm_head.weight" in names) != tied
    again = LlamaForCausalLM.from_pretrained(tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
