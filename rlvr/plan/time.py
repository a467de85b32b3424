"""Seconds of one step by phase, from a roofline with explicit efficiencies.

A pass costs 2 flops per weight and token forward and 4 backward, whether it is a layer or the head; attention costs
4 A L^2 / 2 per sequence and layer forward (a causal half of two products over A numbers) and twice that backward.  The
head works on predicted tokens alone and makes its logits again in the backward.  Letters as in `rlvr.plan.activations`.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlvr.keys import ConfigError
from rlvr.plan.memory import cache_bytes, sampler_weights, token_cache
from rlvr.plan.shapes import Shape
from rlvr.plan.work import Lengths, Work, expected
from rlvr.schema.hardware import HardwareConfig

GIGA, MICRO = 1e9, 1e-6
COLLECTIVES = 7  # per layer and pass under ZeRO-3: one per matrix
STEPPED = 28 + 12  # bytes that an update moves per parameter


@dataclass(frozen=True)
class Phase:
    """Seconds of one step, and what they are spent on."""

    name: str
    seconds: float
    why: str


@dataclass(frozen=True)
class Time:
    """One step."""

    phases: tuple[Phase, ...]
    completion_tokens: float  # trained on per step, over all ranks
    sampled_tokens: float
    mfu: float  # as `speed/mfu` of a run counts it

    @property
    def step(self) -> float:
        """Seconds."""
        return sum(phase.seconds for phase in self.phases)

    def seconds(self, name: str) -> float:
        """Of a phase."""
        return next(phase.seconds for phase in self.phases if phase.name == name)


@dataclass(frozen=True)
class Rates:
    """What one device, and all of them together, do in a second; efficiencies are in it."""

    flops: float
    memory: float  # bytes
    collective: float  # bytes that a rank takes in from the others
    hops: float  # seconds of latency of one collective
    host: float  # bytes

    @classmethod
    def of(cls, hardware: HardwareConfig, world: int) -> Rates:
        """Rates of a job.

        A ring over several machines brings each byte once into every machine, over all of its network cards; inside,
        each device takes it from its neighbour: the slower of the two counts.  Its latency grows with its machines.

        Raises:
            ConfigError: if the peak or the bandwidth of a device is not given.
        """
        machine = hardware.machine
        if hardware.peak_tflops is None or machine.bandwidth is None:
            raise ConfigError(
                "times need hardware.peak_tflops and hardware.machine.bandwidth; on a CPU scripts/bench/plan.py "
                "measures them"
            )
        several = machine.nodes > 1
        slower = min(machine.link, machine.network) if several else machine.link
        return cls(
            flops=hardware.peak_tflops * 1e12 * machine.matmul_efficiency,
            memory=machine.bandwidth * GIGA * machine.bandwidth_efficiency,
            collective=slower * GIGA * machine.network_efficiency,
            hops=machine.latency * MICRO * machine.nodes if world > 1 else 0.0,
            host=machine.host_link * GIGA * machine.network_efficiency,
        )


def time(work: Work, shape: Shape, device: float) -> Time:
    """Seconds by phase at the expected lengths.

    Args:
        device: memory of one device in bytes.

    Raises:
        ConfigError: if a number of the machine is missing.
    """
    lengths = expected(work.config)
    model = _Model(work, shape, lengths, Rates.of(work.config.hardware, work.world))
    generate = model.generate(device)
    phases = (
        generate,
        model.verify(generate.seconds),
        model.transfer(),
        model.score(),
        *model.update(),
        model.optimizer(),
    )
    step = sum(phase.seconds for phase in phases)
    trained = work.numbers.sequences * lengths.completion
    peak = (work.config.hardware.peak_tflops or 1.0) * 1e12 * work.world
    mfu = 8 * shape.parameters * trained / step / peak
    return Time(phases, trained, sum(work.sampled().values()) * lengths.completion, mfu)


@dataclass(frozen=True)
class _Model:
    """The parts of the model of time."""

    work: Work
    shape: Shape
    lengths: Lengths
    rates: Rates

    @property
    def bytes(self) -> int:
        return 2 if self.work.config.hardware.dtype == "bf16" else 4

    # -- sampling ------------------------------------------------------------------------------

    def generate(self, device: float) -> Phase:
        """vLLM: prompts at the speed of matrix products, then steps of one token for all sequences that are alive.

        An engine of `tensor_parallel` ranks has S sequences, of which the cache and `sampler_sequences` let C run at
        once.  The longest sequence alone asks for `longest` steps, all together for S x mean / C; the greater is the
        number of steps.  A step reads the weights and multiplies by them, at once on a GPU and one after the other on a
        CPU's core, and reads the keys and values of the sequences, half of their final length on average.  Without CUDA
        graphs each layer is launched anew.
        """
        hardware, machine = self.work.config.hardware, self.work.config.hardware.machine
        engines, ways = self.work.world / hardware.tensor_parallel, hardware.tensor_parallel
        sequences = sum(self.work.sampled().values()) / engines
        prompts = self.work.numbers.prompts / self.work.config.plan.kept / engines
        held = self.lengths.prompt + self.lengths.completion / 2  # half way on average
        room = cache_bytes(self.work, self.shape, device) / (token_cache(self.work, self.shape) * held)
        at_once = max(1.0, min(sequences, hardware.sampler_sequences, room))
        tokens = sequences * self.lengths.completion
        longest = min(self.lengths.longest, self.work.config.rollout.max_tokens)
        steps = max(longest, tokens / at_once)
        alive = tokens / steps
        weights = sampler_weights(self.work, self.shape) / self.rates.memory
        product = 2 * (self.shape.body + self.shape.head) * alive / ways / self.rates.flops
        cache = alive * held * token_cache(self.work, self.shape) / self.rates.memory
        fixed = (machine.decode_overhead + alive * machine.sequence_overhead) * MICRO
        fixed += self.shape.layers * machine.layer_overhead * MICRO * hardware.sampler_eager
        fixed += 2 * self.shape.layers * machine.latency * MICRO * (ways > 1)  # an all-reduce after o and after down
        matrices = max(weights, product) if hardware.device == "cuda" else weights + product
        decode = steps * (matrices + cache + fixed)
        prefill = 2 * self.shape.body * prompts * self.lengths.prompt / ways / self.rates.flops
        bound = max(("weights", weights), ("products", product), ("KV cache", cache), ("overhead", fixed), key=_second)
        told = f"{steps:.0f} steps of {alive:.0f} sequences, most on {bound[0]}"
        full = ", as many as the KV cache holds" if at_once == room else ""
        return Phase("generate", prefill + decode, told + full)

    def verify(self, generating: float) -> Phase:
        """What verifiers need beyond generation, beside which they work; the last completion alone is waited for."""
        config = self.work.config
        sequences = sum(self.work.sampled().values()) / self.work.world
        total = sequences * config.plan.verify_seconds / config.verify.workers
        waited = max(config.plan.verify_seconds, total - generating)
        return Phase("verify", waited, f"{total:.1f} s of work beside generation")

    def transfer(self) -> Phase:
        """Every tensor to the sampler: gathered under ZeRO-3, then read and written in the device's memory."""
        hardware, times = self.work.config.hardware, 1 + ("reference" in self.work.demands.draws) * 2
        size = self.shape.parameters * self.bytes
        copied = 2 * size / hardware.tensor_parallel / self.rates.memory
        calls = self.shape.tensors * hardware.machine.tensor_overhead * MICRO
        gathered = self._collective(size, self.shape.tensors) if hardware.zero == 3 else 0.0
        return Phase("transfer", times * (copied + calls + gathered), f"{times} x {size / GIGA:.1f} GB")

    # -- passes over the batch --------------------------------------------------------------------

    def _flops(self, head: bool) -> tuple[float, float]:
        """Of one forward over this rank's share of an update: of layers with attention, and of the head."""
        sequences = self.work.numbers.sequences_per_rank_update
        micro, count = self.work.micro(self.lengths), self.work.micro_batches(self.lengths)
        layers = 2 * self.shape.body * micro.tokens * count
        length = self.lengths.prompt + self.lengths.completion
        attention = self.shape.layers * 2 * self.shape.queries * length**2 * sequences
        words = 2 * self.shape.head * micro.predicted * count if head else 0.0
        return layers + attention, words

    def _passes(self, gathers: float, flops: float, forwards: float) -> float:
        """Seconds of one update's micro-batches: products beside the collectives of ZeRO-3, and launches.

        Args:
            gathers: times that a micro-batch moves all weights, or their gradients, between the ranks.
            flops: of all micro-batches.
            forwards: passes of layers per micro-batch, a backward counting as two.
        """
        hardware = self.work.config.hardware
        count = self.work.micro_batches(self.lengths)
        size = self.shape.parameters * self.bytes
        moved = count * gathers * self._collective(size, self.shape.layers * COLLECTIVES) if hardware.zero == 3 else 0.0
        launches = count * forwards * self.shape.layers * hardware.machine.layer_overhead * MICRO
        if hardware.offload_parameters:
            moved += count * gathers * size / self.work.world / self.rates.host
        return max(flops / self.rates.flops, moved) + launches

    def score(self) -> Phase:
        """Forward passes before the update: old log-probs, the reference's, values of a critic."""
        work = self.work
        names = {"old": work.old_passes, "reference": work.reference_passes, "critic": float(work.demands.critic)}
        seconds = 0.0
        for name, times in names.items():
            layers, words = self._flops(head=name != "critic")
            seconds += times * self._passes(1, layers + words, 1) * work.config.algorithm.minibatches
        told = ", ".join(f"{name} x {times:g}" for name, times in names.items() if times)
        return Phase("score", seconds, told or "nothing is scored")

    def update(self) -> tuple[Phase, Phase]:
        """Forward, and backward with what is made again: layers under checkpointing, logits always."""
        work, hardware = self.work, self.work.config.hardware
        again = 1 if hardware.gradient_checkpointing else 0
        forward = backward = 0.0
        for head in (True, False)[: 1 + work.demands.critic]:
            layers, words = self._flops(head)
            forward += self._passes(1, layers + words, 1)
            backward += self._passes(2, (2 + again) * layers + 3 * words, 2 + again)
            backward += self._reduced(work.micro_batches(self.lengths))
        updates, count = work.numbers.updates, work.micro_batches(self.lengths)
        told = f"{updates} updates of {count} micro-batches of {work.micro(self.lengths).tokens:.0f} tokens"
        return Phase("forward", updates * forward, told), Phase("backward", updates * backward, told)

    def _reduced(self, count: int) -> float:
        """Gradients of one update to those who own them: in each micro-batch under ZeRO-2, once below (two ways)."""
        times = {0: 2.0, 1: 1.0, 2: float(count), 3: 0.0}[self.work.config.hardware.zero]
        return times * self._collective(self.shape.parameters * self.bytes, self.shape.layers)

    def optimizer(self) -> Phase:
        """AdamW reads and writes 28 bytes per own parameter (gradient 4, master, two moments both ways), after 12 for
        the gradient's norm and its clipping; weights are then gathered under ZeRO-1 and 2.  Offloaded, it does so in
        the host's memory, and both cross the link."""
        hardware, updates = self.work.config.hardware, self.work.numbers.updates
        own = self.shape.parameters * (1 + self.work.demands.critic)
        share = own / (self.work.world if hardware.zero else 1)
        if hardware.offload_optimizer:
            seconds = (2 * self.bytes + STEPPED) * share / self.rates.host
        else:
            seconds = STEPPED * share / self.rates.memory
        if hardware.zero in (1, 2):
            seconds += self._collective(own * self.bytes, self.shape.layers)
        return Phase("optimizer", updates * seconds, f"{updates} x {share / 1e6:.0f} M parameters a rank")

    def _collective(self, size: float, calls: float) -> float:
        """Seconds to gather, or to reduce and scatter, `size` bytes in `calls` pieces over all ranks."""
        others = (self.work.world - 1) / self.work.world
        return size * others / self.rates.collective + calls * self.rates.hops * (self.work.world > 1)


def _second(named: tuple[str, float]) -> float:
    return named[1]
