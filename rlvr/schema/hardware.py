"""Keys of `hardware.*`: how fast, never what.  Changing one of these does not change the gradient."""

from dataclasses import dataclass

from rlvr.keys import UsedIf, key
from rlvr.schema.machine import MachineConfig

_ZERO3 = UsedIf("hardware.zero is 3", lambda c: c.zero == 3)
_CUDA = UsedIf("hardware.device is cuda", lambda c: c.device == "cuda")


@dataclass(kw_only=True)
class HardwareConfig:
    """Devices, memory and parallelism."""

    device: str = key("what the models run on; also picks gloo or NCCL", choices=("cpu", "cuda"))
    nodes: int = key("machines with `ranks` processes each; for more than one use rlvr submit, srun or torchrun", low=1)
    ranks: int = key("processes on this machine, one per device; under srun or torchrun the launcher decides", low=1)
    threads: int | None = key("CPU threads per rank; null shares the cores among the ranks", low=1)
    dtype: str = key("numbers that the learner computes in; optimizer states are always fp32", choices=("fp32", "bf16"))
    zero: int = key("DeepSpeed ZeRO stage", choices=(0, 1, 2, 3))
    offload_optimizer: bool = key(
        "keep optimizer states in host memory", used_if=UsedIf("hardware.zero >= 1", lambda c: c.zero >= 1)
    )
    offload_parameters: bool = key("keep parameter shards in host memory", used_if=_ZERO3)
    gradient_checkpointing: bool = key("recompute activations in the backward pass")
    attention: str = key(
        "packed: unpadded tokens through torch's attention; flash_attention_2: the same through the flash-attn "
        "package; padded: one row per sequence, for models that the others do not support",
        choices=("packed", "flash_attention_2", "padded"),
    )
    share_prompts: bool = key(
        "lay the prompt of a group only once in each micro-batch; the gradient stays the same",
        used_if=UsedIf("hardware.attention is packed", lambda c: c.attention == "packed"),
    )
    tokens_per_micro_batch: int = key("most tokens of one forward and backward on a rank", unit="tokens", low=1)
    head_chunk: int = key(
        "tokens of the output head's tiles: so many x 4,096 words are its logits at one time", unit="tokens", low=1
    )
    tensor_parallel: int = key("ranks that share one sampler engine", low=1)
    sampler_memory: float = key(
        "memory of the sampler: GiB of KV cache on a CPU, share of the device's memory on a GPU", above=0
    )
    sampler_sequences: int = key("sequences that the sampler decodes at the same time", unit="sequences", low=1)
    sampler_eager: bool = key("sample without compiled graphs: starts sooner, decodes slower on a GPU")
    sampler_sleep: bool = key("free the sampler's memory while the learner trains", used_if=_CUDA)
    join_timeout: float = key("how long a rank waits at the start until all have come", unit="seconds", above=0)
    timeout: float = key("a rank that stays in one phase for longer is named and the run ends", unit="seconds", above=0)
    mismatch_bound: float = key(
        "largest mean difference of two passes of the same weights over a step's tokens; past it the run stops; "
        "health.mismatch.limit, for learner and sampler, is this unless it is set",
        unit="nats",
        above=0,
    )
    peak_tflops: float | None = key(
        "peak of one device, to report MFU and to plan times; null leaves both out", unit="TFLOP/s", above=0
    )
    machine: MachineConfig = key("what the machines can do, for `rlvr plan`; it changes nothing in a run")
