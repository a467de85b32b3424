"""Numbers of parameters are those of the models that transformers makes; what is not known is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from rlvr.config import compose
from rlvr.engine.tiny import _fresh
from rlvr.keys import ConfigError
from rlvr.plan.shapes import KNOWN, TINY_WORDS, Shape, of_config, shape_of
from rlvr.schema.model import ModelConfig

PUBLIC = {  # as Hugging Face counts the safetensors of each
    "Qwen/Qwen2.5-0.5B": 494_032_768,
    "Qwen/Qwen2.5-1.5B": 1_543_714_304,
    "Qwen/Qwen2.5-3B": 3_085_938_688,
    "Qwen/Qwen2.5-7B": 7_615_616_512,
    "Qwen/Qwen2.5-14B": 14_770_033_664,
    "Qwen/Qwen2.5-32B": 32_763_876_352,
    "Qwen/Qwen2.5-Math-7B": 7_615_616_512,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": 1_777_088_000,
    "Qwen/Qwen3-8B-Base": 8_190_735_360,
    "meta-llama/Llama-3.1-70B": 70_553_706_496,
    "HuggingFaceTB/SmolLM2-135M-Instruct": 134_515_008,
}


def hugging_face(shape: Shape) -> Any:
    """The config of the same model in transformers."""
    kind = Qwen3Config if shape.qk_norm else Qwen2Config if shape.qkv_bias else LlamaConfig
    return kind(
        vocab_size=shape.words,
        hidden_size=shape.width,
        intermediate_size=shape.mlp,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        tie_word_embeddings=shape.tied,
    )


@pytest.mark.parametrize("name", PUBLIC)
def test_parameters_are_those_of_the_public_model(name: str) -> None:
    assert KNOWN[name].parameters == PUBLIC[name]


@pytest.mark.parametrize(
    "name",
    ["Qwen/Qwen2.5-1.5B", "Qwen/Qwen3-8B-Base", "meta-llama/Llama-3.1-70B", "HuggingFaceTB/SmolLM2-135M-Instruct"],
)
def test_parameters_and_tensors_are_those_of_transformers(name: str) -> None:
    shape = KNOWN[name]
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(hugging_face(shape))
    assert shape.parameters == sum(p.numel() for p in model.parameters())
    assert shape.tensors == len(list(model.parameters()))
    told = {**hugging_face(shape).to_dict(), "model_type": model.config.model_type}
    assert of_config(told, "x") == shape


def test_the_tiny_model_follows_its_keys() -> None:
    config = compose(["model.hidden=64", "model.layers=2"])
    model = _fresh(config.model)  # type: ignore[arg-type]
    shape = shape_of(config.model)
    assert shape.parameters == sum(p.numel() for p in model.parameters())
    assert model.config.vocab_size == TINY_WORDS


def hub(path: str) -> ModelConfig:
    return ModelConfig(name="x", kind="hub", path=path, chat="auto", trust_remote_code=False)


def test_a_folder_tells_its_own_shape(tmp_path: Path) -> None:
    smollm2 = KNOWN["HuggingFaceTB/SmolLM2-135M-Instruct"]
    told = hugging_face(smollm2).to_dict() | {"model_type": "llama", "num_hidden_layers": 7}
    (tmp_path / "config.json").write_text(json.dumps(told))
    assert shape_of(hub(str(tmp_path))).layers == 7


def test_what_is_not_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="folder has no config.json"):
        shape_of(hub(str(tmp_path)))
    with pytest.raises(ConfigError, match="shape is not known; download it"):
        shape_of(hub("nobody/nothing"))
    with pytest.raises(ConfigError, match="model_type=mamba"):
        of_config({"model_type": "mamba"}, "model.path=x")
    with pytest.raises(ConfigError, match="does not give num_attention_heads"):
        of_config({"model_type": "llama", "hidden_size": 8}, "model.path=x")
