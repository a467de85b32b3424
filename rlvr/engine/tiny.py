"""A language model that needs no download: a small Qwen2 with a character tokenizer, warm-started on the spot."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import string
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch.nn.functional import cross_entropy
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from rlvr.engine.export import write_here
from rlvr.schema.model import TinyConfig

FORMAT = 2  # raise it when the same config and examples would make another folder

IGNORED = -100  # label of positions without a loss
AVERAGING = 0.1  # weight of the newest batch in the running accuracy of the warm start

Example = tuple[tuple[int, ...], tuple[int, ...]]  # prompt tokens, answer tokens with their end token


def character_tokenizer() -> PreTrainedTokenizerFast:
    """One token per printable ASCII character; anything else is <unk>."""
    words = ["<pad>", "<eos>", "<unk>", *string.printable[:95], "\n"]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        clean_up_tokenization_spaces=False,
    )


def tiny_model(config: TinyConfig, examples: Sequence[Example], on_progress: Callable[[float], None]) -> Path:
    """Make the model and warm-start it on `examples`, or find it in the cache of earlier runs.

    Args:
        config: shape, seed and length of the warm start.
        examples: training rows only; held-out rows would leak.
        on_progress: told the share of the warm start that is done, 0 to 1.

    Returns:
        A folder in Hugging Face's format under the user's cache directory, named by a hash of all that made it.
    """
    target = cache_folder() / f"tiny-{_digest(config, examples)}"
    if target.exists():
        return target
    with _one_thread():
        model = _fresh(config)
        _warm_up(model, config, examples, on_progress)
    return keep(target, model, character_tokenizer())


def keep(target: Path, model: Any, tokenizer: Any) -> Path:
    """Write a model that was made here into the cache, whole or not at all, whoever makes the same at the same time."""
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}-"))
    write_here(model, tokenizer, work)
    try:
        work.rename(target)
    except OSError:  # another process was faster
        shutil.rmtree(work)
    return target


def cache_folder() -> Path:
    """Where models made on this machine are kept between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rlvr" / "models"


def _digest(config: TinyConfig, examples: Sequence[Example]) -> str:
    told = json.dumps([FORMAT, vars(config), examples, torch.__version__], sort_keys=True, default=list)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


@contextmanager
def _one_thread() -> Iterator[None]:
    """So small a model gains little from more threads, and its weights do not depend on how many there are."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _fresh(config: TinyConfig) -> Qwen2ForCausalLM:
    torch.manual_seed(config.warm_seed)
    shape = Qwen2Config(
        vocab_size=len(character_tokenizer()),
        hidden_size=config.hidden,
        intermediate_size=3 * config.hidden,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.heads,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
        dtype="float32",
    )
    return Qwen2ForCausalLM(shape)


def _warm_up(
    model: Qwen2ForCausalLM, config: TinyConfig, examples: Sequence[Example], on_progress: Callable[[float], None]
) -> None:
    """Next-token cross-entropy on the answers until `warm_accuracy` of the rows just seen would be answered right.

    A row is right if every token of its answer is the most likely one: what greedy decoding would give.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.warm_lr, weight_decay=0.0)
    order = torch.Generator().manual_seed(config.warm_seed)
    accuracy = 0.0
    for update in range(config.warm_updates):
        picked = torch.randint(len(examples), (config.warm_batch,), generator=order).tolist()
        ids, labels = _collate([examples[i] for i in picked])
        logits = model(input_ids=ids).logits[:, :-1]
        labels = labels[:, 1:]
        right = ((logits.argmax(-1) == labels) | (labels == IGNORED)).all(-1).float().mean().item()
        accuracy += AVERAGING * (right - accuracy)
        if accuracy >= config.warm_accuracy:
            return
        loss = cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        on_progress(max((update + 1) / config.warm_updates, accuracy / config.warm_accuracy))


def _collate(rows: Sequence[Example]) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(len(p) + len(a) for p, a in rows)
    ids, labels = torch.zeros(len(rows), width, dtype=torch.int64), torch.full((len(rows), width), IGNORED)
    for row, (prompt, answer) in enumerate(rows):
        stop = len(prompt) + len(answer)
        ids[row, :stop] = torch.tensor(prompt + answer)
        labels[row, len(prompt) : stop] = torch.tensor(answer)
    return ids, labels
