"""The sampler: vLLM inside this process, fed token ids, with the learner's weights pushed in.

Every sampling field is sent explicitly, so that no file of a model can change what is sampled, and
log-probs are those of the distribution that was sampled from (temperature included).
"""

from __future__ import annotations

import itertools
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from torch import Tensor, nn

from rlvr.records import Completion, Prompt, Source
from rlvr.schema.hardware import HardwareConfig
from rlvr.schema.model import ModelConfig
from rlvr.world import World

STOP_EVERY = 16  # engine steps between two looks at whether to stop; ranks of one engine look together


def never() -> bool:
    """Do not stop."""
    return False


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """How completions are drawn."""

    temperature: float  # 0 is greedy
    top_p: float
    max_tokens: int
    source: Source


@dataclass(frozen=True)
class Order:
    """One completion to draw: of which prompt, with which seed."""

    prompt: Prompt
    seed: int


class StaleWeights(RuntimeError):
    """The sampler was asked to generate with weights that are not the ones the trainer last meant it to have."""


class Sampler:
    """One vLLM engine per rank, or per `tensor_parallel` neighbouring ranks that then work in step."""

    def __init__(
        self,
        folder: str,
        model: ModelConfig,
        hardware: HardwareConfig,
        world: World,
        tokenizer: Any,
        stop_ids: Sequence[int],
        longest: int,
    ) -> None:
        """Start the engine with the weights in `folder`.

        Args:
            stop_ids: tokens that end a completion.
            longest: most tokens of prompt and completion together.
        """
        self.world, self.tokenizer, self.stop_ids = world, tokenizer, list(stop_ids)
        self.sleeps = hardware.sampler_sleep and hardware.device == "cuda"
        self.parallel = hardware.tensor_parallel
        self.version: str | None = None
        self._asleep: set[str] = set()
        self._sent = 0
        self.llm = _start(folder, model, hardware, world, longest)

    # -- weights ----------------------------------------------------------------------------

    def load(self, weights: Iterator[tuple[str, Tensor]], version: str) -> None:
        """Take new weights and their version stamp, and forget every cached prefix.

        The order matters on a GPU: room for the weights first, then the weights, then the KV cache.

        Raises:
            RuntimeError: if the engine did not drop its prefix cache.
        """
        self.version = None
        self._wake("weights")
        names: set[str] = set()
        self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": _named(weights, names)})
        self.llm.apply_model(partial(_refresh_head, tied="lm_head.weight" not in names))
        self._wake("kv_cache")
        self.forget()
        self.version = version

    def forget(self) -> None:
        """Drop every cached prefix.

        Raises:
            RuntimeError: if the engine did not.
        """
        if self.llm.reset_prefix_cache() is False:
            raise RuntimeError(
                "vLLM did not reset its prefix cache: old keys and values would be reused with new weights"
            )

    def sleep(self) -> None:
        """Free the engine's memory; its weights are gone until the next `load`."""
        if self.sleeps and not self._asleep:
            self.llm.sleep(level=2)
            self._asleep = {"weights", "kv_cache"}
            self.version = None

    def _wake(self, part: str) -> None:
        if part in self._asleep:
            self.llm.wake_up(tags=[part])
            self._asleep.discard(part)

    def close(self) -> None:
        """End the engine; vLLM's own clean-up would come after the process group is gone."""
        self.llm.llm_engine.engine_core.shutdown()

    # -- generation ---------------------------------------------------------------------------

    def generate(
        self,
        orders: Sequence[Order],
        decoding: Decoding,
        version: str,
        on_done: Callable[[int, Completion], None] = lambda index, completion: None,
        stop: Callable[[], bool] = never,
    ) -> list[Completion]:
        """Draw one completion per order.

        Args:
            orders: this rank's; ranks of one tensor-parallel group generate those of all its members.
            decoding: how to draw.
            version: the weights that the caller means.
            on_done: told (index, completion) as soon as it is complete, while others are still being drawn.
            stop: asked now and then; once it is true, the completions that are not complete are left out.

        Raises:
            StaleWeights: if the engine holds other weights.
        """
        if version != self.version:
            raise StaleWeights(f"the sampler holds weights {self.version}, asked for {version}")
        everyone = self.world.subgroup_gather(list(orders), self.parallel)
        first = sum(len(o) for o in everyone[: self.world.rank % self.parallel])
        mine = range(first, first + len(orders))
        done: dict[int, Completion] = {}
        requests = [order for part in everyone for order in part]
        for index, completion in self._run(requests, decoding, stop):
            if index in mine:
                done[index - first] = completion
                on_done(index - first, completion)
        return [done[i] for i in sorted(done)]

    def logprobs(self, tokens: Sequence[int]) -> list[float]:
        """Log-probs of all but the first of `tokens` under the engine's weights at temperature 1; a probe."""
        from vllm import SamplingParams, TokensPrompt

        settings = SamplingParams(temperature=1.0, max_tokens=1, prompt_logprobs=0, detokenize=False)
        (out,) = self.llm.generate([TokensPrompt(prompt_token_ids=list(tokens))], settings, use_tqdm=False)
        told = out.prompt_logprobs or []
        return [entry[token].logprob for token, entry in zip(tokens[1:], told[1:], strict=True) if entry is not None]

    def _run(
        self, orders: Sequence[Order], decoding: Decoding, stop: Callable[[], bool]
    ) -> Iterator[tuple[int, Completion]]:
        from vllm import SamplingParams, TokensPrompt
        from vllm.sampling_params import RequestOutputKind

        engine = self.llm.llm_engine
        base = self._sent
        for offset, order in enumerate(orders):
            settings = SamplingParams(
                n=1,
                temperature=decoding.temperature,
                top_p=decoding.top_p,
                top_k=0,
                min_p=0.0,
                seed=order.seed,
                max_tokens=decoding.max_tokens,
                stop_token_ids=self.stop_ids,
                ignore_eos=True,  # stop_ids holds every end token
                logprobs=0,
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,
                skip_clone=True,  # nobody else has it, and copying takes longer than making it
            )
            engine.add_request(str(base + offset), TokensPrompt(prompt_token_ids=list(order.prompt.tokens)), settings)
        self._sent += len(orders)
        for step in itertools.count(1):
            if not engine.has_unfinished_requests():
                return
            for out in engine.step():
                if out.finished:
                    yield int(out.request_id) - base, self._completion(out.outputs[0], decoding)
            if step % STOP_EVERY == 0 and any(self.world.subgroup_gather(stop(), self.parallel)):
                break
        engine.abort_request([str(number) for number in range(base, self._sent)])

    def _completion(self, out: Any, decoding: Decoding) -> Completion:
        tokens = tuple(out.token_ids)
        return Completion(
            tokens=tokens,
            logprobs=tuple(entry[token].logprob for token, entry in zip(tokens, out.logprobs, strict=True)),
            text=self.tokenizer.decode(tokens, skip_special_tokens=True),
            truncated=out.finish_reason == "length",
            source=decoding.source,
        )


def _start(folder: str, model: ModelConfig, hardware: HardwareConfig, world: World, longest: int) -> Any:
    on_cpu = hardware.device == "cpu"
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the engine lives in this process, beside the learner
    logging.getLogger("vllm").setLevel(os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR"))
    if on_cpu:
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"  # else it pins the learner's threads to one core
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"vllm\.")
    try:
        from vllm import LLM
    except ImportError as error:
        extra = "cpu" if on_cpu else "gpu"
        raise RuntimeError(f"vLLM is not installed: pip install 'rlvr[{extra}]' ({error})") from error

    memory: dict[str, Any] = {"gpu_memory_utilization": hardware.sampler_memory}
    if on_cpu:  # a prompt that is read in pieces turns its seeded generator back, which generators of a CPU cannot
        memory = {"enable_chunked_prefill": False, "kv_cache_memory_bytes": round(hardware.sampler_memory * 2**30)}
    return LLM(
        model=folder,
        skip_tokenizer_init=True,
        trust_remote_code=model.trust_remote_code,
        dtype="float32" if hardware.dtype == "fp32" else "bfloat16",
        seed=world.rank // hardware.tensor_parallel,
        tensor_parallel_size=hardware.tensor_parallel,
        distributed_executor_backend="external_launcher",
        max_model_len=longest,
        max_num_seqs=hardware.sampler_sequences,
        enforce_eager=hardware.sampler_eager,
        enable_prefix_caching=True,
        use_tqdm_on_load=False,
        enable_sleep_mode=hardware.sampler_sleep and not on_cpu,
        logprobs_mode="processed_logprobs",
        generation_config="vllm",
        disable_log_stats=True,
        **memory,
    )


def _named(weights: Iterator[tuple[str, Tensor]], names: set[str]) -> Iterator[tuple[str, Tensor]]:
    for name, tensor in weights:
        names.add(name)
        yield name, tensor


def _refresh_head(model: nn.Module, tied: bool) -> None:
    """Bring what vLLM keeps of the output head beside the embeddings in line with the new weights.

    A head that the configuration ties is one of its own in vLLM 0.32 where the model's files hold a tensor of its name,
    and no weights of a learner that ties it are sent by that name.  The CPU backend moreover keeps a prepacked copy of
    the head, which reloading weights leaves as it is.
    """
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding

    head = getattr(model, "lm_head", None)
    if not isinstance(head, ParallelLMHead):
        return
    if tied:
        embeddings = (m for m in model.modules() if isinstance(m, VocabParallelEmbedding) and m is not head)
        own, weight = cast(Tensor, head.weight), cast(Tensor, next(embeddings).weight)
        if own.data_ptr() != weight.data_ptr():
            own.data.copy_(weight.data)
    head.quant_method.process_weights_after_loading(head)
