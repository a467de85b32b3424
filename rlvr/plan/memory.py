"""Memory of one device, part by part and phase by phase.

Sizes are those of DeepSpeed 0.19 with its default buckets.  Letters: P parameters, N ranks, b bytes of a number.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlvr.plan.activations import (
    Pass,
    backward_bytes,
    forward_bytes,
    head_backward_bytes,
    head_forward_bytes,
    saved_bytes,
)
from rlvr.plan.shapes import Shape
from rlvr.plan.work import Lengths, Work

GIB = 2**30
PHASES = ("generate", "score", "update", "step")
BUCKET = 500_000_000  # numbers: DeepSpeed's reduce_bucket_size
AVERAGED = 50_000_000  # numbers: parts in which the learner averages gradients without ZeRO
LIVE = 1_000_000_000  # numbers: its stage3_max_live_parameters, and sub_group_size
ASLEEP = 1.0 * GIB  # assumed: what vLLM keeps on a device while it sleeps, CUDA graphs among it
PROFILED = 8192  # tokens of vLLM's largest batch of prompts, whose activations it sets aside
TIGHT = 0.9  # of a device's memory


@dataclass(frozen=True)
class Part:
    """Bytes on one device in each of `PHASES`."""

    name: str
    over: str  # what it is sharded over; empty for nothing
    bytes: tuple[float, float, float, float]


@dataclass(frozen=True)
class Memory:
    """All parts of one device, and those in the memory of one machine's host."""

    device: tuple[Part, ...]
    host: tuple[tuple[str, float], ...]

    def at(self, phase: str) -> float:
        """Bytes of one device in a phase."""
        return sum(part.bytes[PHASES.index(phase)] for part in self.device)

    @property
    def peak(self) -> float:
        """Bytes of one device in the phase that takes most."""
        return max(self.at(phase) for phase in PHASES)

    @property
    def host_peak(self) -> float:
        """Bytes of one machine's host."""
        return sum(size for _, size in self.host)


def memory(work: Work, shape: Shape, lengths: Lengths, device: float) -> Memory:
    """What a run allocates.

    Args:
        work: its numbers.
        lengths: of the sequences of a micro-batch.
        device: memory of one device in bytes, of which the sampler takes its share on a GPU.
    """
    hardware = work.config.hardware
    models = {"policy": shape.parameters}
    if work.demands.critic:
        models["critic"] = shape.critic_parameters
    parts = [Part("libraries", "", _always(hardware.machine.overhead * GIB)), *_sampler(work, shape, device)]
    host: list[tuple[str, float]] = []
    for name, parameters in models.items():
        learner = _Learner(work, shape, parameters)
        parts += learner.parts(name)
        host += learner.host(name)
    if work.has_reference:
        parts.append(_reference(work, shape))
        if hardware.offload_parameters:
            host.append(("reference, shards", shape.parameters * _bytes(work) / work.world * hardware.ranks))
    if hardware.zero == 3:
        live = _bytes(work) * min(shape.parameters, LIVE + shape.head)
        parts.append(Part("gathered weights", "", (_bytes(work) * shape.head, live, live, 0.0)))
    elif hardware.device == "cuda":
        host.append(("weights while they load, all ranks", shape.parameters * _bytes(work) * hardware.ranks))
    return Memory((*parts, *_micro_batch(work, shape, lengths)), tuple(host))


def cache_bytes(work: Work, shape: Shape, device: float) -> float:
    """Of the KV cache of one device: on a CPU as configured, else what weights and activations leave of the sampler's.

    vLLM sets aside the activations of a batch of `PROFILED` tokens (two widths of the MLP) and, three times, the fp32
    logits of all sequences that it decodes at once.
    """
    hardware = work.config.hardware
    if hardware.device == "cpu":
        return hardware.sampler_memory * GIB
    logits = 12 * min(hardware.sampler_sequences, PROFILED) * shape.words / hardware.tensor_parallel
    aside = PROFILED * 2 * shape.mlp * _bytes(work) + logits + hardware.machine.overhead * GIB
    return hardware.sampler_memory * device - sampler_weights(work, shape) - aside


def token_cache(work: Work, shape: Shape) -> float:
    """Bytes of one token's keys and values on one device; a head of them is never parted."""
    parts = min(work.config.hardware.tensor_parallel, shape.kv_heads)
    return shape.cached * _bytes(work) / parts


def sampler_weights(work: Work, shape: Shape) -> float:
    """Bytes of the sampler's own copy of the weights on one device; on a CPU also its prepacked copy of the head."""
    packed = shape.head if work.config.hardware.device == "cpu" else 0
    return (shape.parameters + packed) * _bytes(work) / work.config.hardware.tensor_parallel


def run_of(work: Work) -> Pass:
    """How the learner runs."""
    hardware = work.config.hardware
    return Pass(
        bytes=_bytes(work),
        attention=hardware.attention,
        checkpointing=hardware.gradient_checkpointing,
        chunk=hardware.head_chunk,
        entropy_learns=work.demands.entropy_learns,
    )


def _bytes(work: Work) -> int:
    return 2 if work.config.hardware.dtype == "bf16" else 4


def _always(size: float) -> tuple[float, float, float, float]:
    return size, size, size, size


def _sampler(work: Work, shape: Shape, device: float) -> list[Part]:
    hardware = work.config.hardware
    over = f"{hardware.tensor_parallel} ranks" if hardware.tensor_parallel > 1 else ""
    if hardware.device == "cpu":
        cache = Part("sampler, KV cache", over, _always(cache_bytes(work, shape, device)))
        return [Part("sampler, weights", over, _always(sampler_weights(work, shape))), cache]
    awake = hardware.sampler_memory * device
    later = ASLEEP if hardware.sampler_sleep else awake
    return [Part("sampler, weights and KV cache", over, (awake, later, later, later))]


def _reference(work: Work, shape: Shape) -> Part:
    hardware, size = work.config.hardware, shape.parameters * _bytes(work)
    sharded = hardware.zero == 3
    held = 0.0 if hardware.offload_parameters else size / work.world if sharded else size
    return Part("reference, weights", f"{work.world} ranks" if sharded else "", _always(held))


def _micro_batch(work: Work, shape: Shape, lengths: Lengths) -> list[Part]:
    """Activations and the chunked head; scoring keeps none of them.

    Where the head is the embedding, autograd holds its gradient from the one until that of the other is there, and then
    adds them: three of them at the end, when activations are gone.
    """
    micro, way = work.micro(lengths), run_of(work)
    saved, held = saved_bytes(shape, micro, way), _bytes(work) * shape.head * shape.tied
    layer = max(backward_bytes(shape, micro, way) + held, 3 * held - saved)
    head = head_backward_bytes(shape, micro, way)
    scored = work.old_passes or work.reference_passes or work.demands.critic
    score = max(forward_bytes(shape, micro, way), head_forward_bytes(shape, micro, way)) if scored else 0.0
    return [
        Part("saved activations", "", (0.0, 0.0, saved, 0.0)),
        Part("logits and layer at work", "", (0.0, score, max(head, layer), 0.0)),
    ]


@dataclass(frozen=True)
class _Learner:
    """A trained model under DeepSpeed.

    | ZeRO | weights | master | moments | gradients | bucket |
    |---|---|---|---|---|---|
    | 0 | bP | 4P, none in fp32 | 8P | bP | b AVERAGED on several ranks, after the last backward |
    | 1 | bP | 4P/N | 8P/N | bP | b BUCKET, in the update |
    | 2 | bP | 4P/N | 8P/N | bP/N | b BUCKET, in the update |
    | 3 | bP/N | 4P/N | 8P/N | bP/N, always | b BUCKET, always |

    The master is a copy even in fp32, from stage 1 on.  The optimizer's step makes an fp32 copy of the gradients
    (4P/N); stage 3 does so by groups of `LIVE` numbers.
    """

    work: Work
    shape: Shape
    parameters: int

    @property
    def sharded(self) -> bool:
        return self.work.config.hardware.zero >= 1

    @property
    def share(self) -> float:
        """P/N from stage 1 on."""
        return self.parameters / (self.work.world if self.sharded else 1)

    @property
    def plain(self) -> bool:
        """torch's own optimizer on the weights themselves."""
        hardware = self.work.config.hardware
        return hardware.zero == 0 and hardware.dtype == "fp32"

    def parts(self, name: str) -> list[Part]:
        """On the device."""
        hardware, b = self.work.config.hardware, _bytes(self.work)
        zero, ranks = hardware.zero, f"{self.work.world} ranks"
        over, states = (ranks if zero == 3 else ""), (ranks if self.sharded else "")
        weights = 0.0 if hardware.offload_parameters else b * (self.share if zero == 3 else self.parameters)
        kept = 0.0 if hardware.offload_optimizer else self.share
        gradient = b * (self.share if zero >= 2 else self.parameters)
        gradients = _always(gradient) if zero == 3 else (0.0, 0.0, gradient, gradient)
        bucket = b * (min(BUCKET, self.parameters) if hardware.device == "cpu" else BUCKET)
        averaged = b * min(AVERAGED, self.parameters) * (self.work.world > 1)
        buckets = {0: (0.0, 0.0, 0.0, averaged), 3: _always(bucket)}.get(zero, (0.0, 0.0, bucket, 0.0))
        return [
            Part(f"{name}, weights", over, _always(weights)),
            Part(f"{name}, fp32 master", states, _always(0.0 if self.plain else 4 * kept)),
            Part(f"{name}, moments", states, _always(8 * kept)),
            Part(f"{name}, gradients", ranks if zero >= 2 else "", gradients),
            Part(f"{name}, reduce bucket", "", buckets),
            Part(f"{name}, optimizer at work", states, (0.0, 0.0, 0.0, self._at_work())),
        ]

    def _at_work(self) -> float:
        hardware = self.work.config.hardware
        if hardware.offload_optimizer:
            return 0.0
        numbers = min(self.share, LIVE) if hardware.zero == 3 else self.share
        return 4.0 * numbers * (not self.plain)

    def host(self, name: str) -> list[tuple[str, float]]:
        """Offloaded to the host of one machine, by all its ranks: master, moments and fp32 gradients; weights."""
        hardware, on_host = self.work.config.hardware, self.share * self.work.config.hardware.ranks
        told = []
        if hardware.offload_optimizer:
            told.append((f"{name}, master, moments, gradients", 16 * on_host))
        if hardware.offload_parameters:
            told.append((f"{name}, shards", _bytes(self.work) * on_host))
        return told
