"""Keys of `model.*`: which language model, and how it is spoken to."""

from dataclasses import dataclass
from typing import Any

from rlvr.keys import key


@dataclass(kw_only=True)
class ModelConfig:
    """A Hugging Face model by name or path."""

    name: str = key("name of the model, as in conf/model/")
    kind: str = key("where it comes from", choices=("hub", "smollm2", "tiny"))
    path: str | None = key("Hugging Face name or local folder; null where the kind makes the model itself")
    chat: str = key(
        "how prompts are rendered: with the tokenizer's chat template (template), as bare text (text), "
        "or with the template if there is one (auto)",
        choices=("auto", "template", "text"),
    )
    chat_kwargs: dict[str, Any] = key("arguments of the chat template, for example enable_thinking: false", empty=dict)
    stop: list[str] = key("tokens that end a completion beside the model's own end tokens", empty=list)
    lr: float = key("learning rate that suits a model of this size; optim.lr is this unless it is set", above=0)
    trust_remote_code: bool = key("run model code from the hub; off unless you have read it")


@dataclass(kw_only=True)
class TinyConfig(ModelConfig):
    """A Qwen2 of about a million parameters with a character tokenizer, made and warm-started on the spot."""

    layers: int = key("decoder layers", low=1)
    hidden: int = key("width", low=8)
    heads: int = key("attention heads", low=1)
    warm_updates: int = key("most supervised updates on the training rows before RL", unit="updates", low=0)
    warm_accuracy: float = key("the supervised updates end once this share of rows is answered right", low=0, high=1)
    warm_batch: int = key("rows per supervised update", unit="rows", low=1)
    warm_lr: float = key("learning rate of the supervised warm start", above=0)
    warm_seed: int = key("seed of its weights and of its warm start")
