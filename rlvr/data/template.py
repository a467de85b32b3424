"""From rows to prompts: rendered, tokenized once, and token ids from here to the sampler."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlvr.data.sources import entry_of
from rlvr.keys import ConfigError, nearest
from rlvr.records import Prompt, Row
from rlvr.schema.data import DataConfig
from rlvr.schema.model import ModelConfig

THOUGHT = "<think>"
_OURS = ("conversation", "tokenize", "add_generation_prompt", "return_dict", "return_tensors", "padding", "truncation")


@dataclass(frozen=True)
class RenderReport:
    """What became of the rows: ids and lengths of prompts that were longer than data.max_prompt_tokens."""

    kept: int
    longest: int  # tokens of the longest prompt kept
    too_long: tuple[tuple[str, int], ...]  # (row id, tokens)
    policy: str = "drop"  # data.too_long

    def __str__(self) -> str:
        fate = "cut at their start" if self.policy == "cut" else "left out"
        dropped = f", {len(self.too_long)} too long and {fate}" if self.too_long else ""
        shown = "".join(f"\n  {row}  {tokens} tokens" for row, tokens in self.too_long[:10])
        return f"{self.kept} prompts, the longest of {self.longest} tokens{dropped}{shown}"


class Renderer:
    """Rows -> prompts for one tokenizer.

    Args:
        tokenizer: a transformers tokenizer.
        model_config: its `chat` and `chat_kwargs` are used.
        data_config: its `template`, `system`, `max_prompt_tokens` and `too_long` are used.

    Raises:
        ConfigError: if these do not fit each other.
    """

    def __init__(self, tokenizer: Any, model_config: ModelConfig, data_config: DataConfig) -> None:
        self.tokenizer = tokenizer
        self.data = data_config
        self.kwargs = dict(model_config.chat_kwargs)
        self.chat = model_config.chat == "template" or (model_config.chat == "auto" and bool(tokenizer.chat_template))
        told = {f"data.sources.{name}.template": source.template for name, source in data_config.sources.items()}
        for key, template in {"data.template": data_config.template, **told}.items():
            if template is not None and "{question}" not in template:
                raise ConfigError(f"{key}={template!r} does not contain {{question}}")
        self._check_chat(model_config)
        bos = tokenizer.bos_token_id
        self._adds_bos = bos is not None and list(tokenizer("").input_ids[:1]) == [bos]

    def _check_chat(self, config: ModelConfig) -> None:
        if self.chat and not self.tokenizer.chat_template:
            raise ConfigError(
                f"model.chat=template: the tokenizer of {config.name} has no chat template; use model.chat=text"
            )
        if self.kwargs and not self.chat:
            raise ConfigError(
                f"model.chat_kwargs is set but has no effect: with model.chat={config.chat} no chat template is used"
            )
        if not self.kwargs:
            return
        template = self.tokenizer.get_chat_template()
        for name in self.kwargs:
            if name in _OURS:
                raise ConfigError(f"model.chat_kwargs.{name}: not an argument of the template; rlvr sets it itself")
            if not re.search(rf"\b{re.escape(name)}\b", template):
                hint = nearest(name, sorted(set(re.findall(r"[A-Za-z_]\w+", template))))
                raise ConfigError(
                    f"model.chat_kwargs.{name}: the chat template of {config.name} never reads it"
                    + (f"; did you mean {hint}?" if hint else "")
                )

    def render(self, row: Row) -> Prompt:
        """One prompt, however long; the question stands in its source's or data's template, in the last user message.

        Raises:
            ConfigError: if the row brings a system message and data.system adds another.
            ValueError: if the prompt is empty or would start with two BOS tokens.
        """
        messages = self._messages(row)
        tokens = self._templated(messages) if self.chat else self._bare(messages)
        bos = self.tokenizer.bos_token_id
        if not tokens:
            raise ValueError(f"row {row.id} renders to no tokens at all")
        if bos is not None and tokens[:2] == [bos, bos]:
            raise ValueError(
                f"row {row.id} starts with two BOS tokens ({self.tokenizer.bos_token!r}): remove those that "
                "data.system, data.template or the question spell out"
            )
        return Prompt(
            id=row.id,
            source=row.source,
            text=self._text(tokens),
            tokens=tuple(tokens),
            answer=row.answer,
            verifier=row.verifier,
        )

    def render_all(self, rows: Sequence[Row]) -> tuple[list[Prompt], RenderReport]:
        """All prompts that fit into data.max_prompt_tokens, or are cut to it with data.too_long=cut, in order.

        Raises:
            ValueError: on a longer one with data.too_long=error, or if there are only longer ones.
        """
        prompts = [self.render(row) for row in rows]
        limit = self.data.max_prompt_tokens
        cut = self.data.too_long == "cut"
        kept = [self._cut(prompt) if cut else prompt for prompt in prompts if cut or len(prompt.tokens) <= limit]
        long = tuple((prompt.id, len(prompt.tokens)) for prompt in prompts if len(prompt.tokens) > limit)
        if long and (self.data.too_long == "error" or not kept):
            shown = ", ".join(f"{row} ({tokens} tokens)" for row, tokens in long[:3])
            raise ValueError(
                f"{len(long)} of {len(prompts)} prompts are longer than data.max_prompt_tokens={limit}, "
                f"for example {shown}; raise it" + (", or leave them out with data.too_long=drop" if kept else "")
            )
        return kept, RenderReport(len(kept), max((len(p.tokens) for p in kept), default=0), long, self.data.too_long)

    def _cut(self, prompt: Prompt) -> Prompt:
        """The last data.max_prompt_tokens of a prompt, with the BOS that it began with."""
        limit, bos = self.data.max_prompt_tokens, self.tokenizer.bos_token_id
        if len(prompt.tokens) <= limit:
            return prompt
        begin = prompt.tokens[:1] if prompt.tokens[0] == bos else ()
        tokens = (*begin, *prompt.tokens[len(prompt.tokens) - limit + len(begin) :])
        return replace(prompt, tokens=tokens, text=self._text(tokens))

    def _text(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def _messages(self, row: Row) -> list[dict[str, str]]:
        *before, last = row.messages
        source = self.data.sources.get(entry_of(row))
        template = (source and source.template) or self.data.template
        # Not str.format: questions are full of braces.
        asked = {**last, "content": template.replace("{question}", last["content"])}
        if self.data.system is None:
            return [*before, asked]
        if any(message["role"] == "system" for message in before):
            raise ConfigError(
                f"data.system is set, but row {row.id} brings its own system message; use data.system=null"
            )
        return [{"role": "system", "content": self.data.system}, *before, asked]

    def _templated(self, messages: list[dict[str, str]]) -> list[int]:
        return list(
            self.tokenizer.apply_chat_template(
                messages, tokenize=True, add_generation_prompt=True, return_dict=False, **self.kwargs
            )
        )

    def _bare(self, messages: list[dict[str, str]]) -> list[int]:
        """The texts, with the BOS that the tokenizer would add unless they begin with it; never an EOS behind them."""
        text = "\n\n".join(message["content"] for message in messages)
        tokens = list(self.tokenizer(text, add_special_tokens=False).input_ids)
        bos = self.tokenizer.bos_token_id
        return [bos, *tokens] if self._adds_bos and tokens[:1] != [bos] else tokens


def opened_thought(text: str) -> str:
    """The tag that a prompt's chat template left open at its end, "<think>", or "".

    Completions then begin inside the thought: whoever judges one reads it behind this tag.
    """
    return THOUGHT if text.rstrip().endswith(THOUGHT) else ""


def stop_ids(
    tokenizer: Any, generation_config_eos: int | Collection[int] | None, stop: Collection[str]
) -> tuple[int, ...]:
    """Every token that ends a completion, ascending.

    Args:
        tokenizer: its EOS is one of them.
        generation_config_eos: `eos_token_id` of the model's generation config: one, several or none.
        stop: names of further tokens (model.stop).

    Raises:
        ConfigError: if a name is no token of the vocabulary, or if there is no stop token at all.
    """
    vocabulary = tokenizer.get_vocab()
    for name in stop:
        if name not in vocabulary:
            hint = nearest(name, sorted(tokenizer.all_special_tokens))
            raise ConfigError(
                f"model.stop: {name!r} is not a token of the model" + (f"; did you mean {hint!r}?" if hint else "")
            )
    ids = {vocabulary[name] for name in stop}
    if tokenizer.eos_token_id is not None:
        ids.add(tokenizer.eos_token_id)
    if generation_config_eos is not None:
        ids |= {generation_config_eos} if isinstance(generation_config_eos, int) else set(generation_config_eos)
    if not ids:
        raise ConfigError(
            "the model has no end token: name one in model.stop, or every completion hits the length limit"
        )
    return tuple(sorted(ids))
