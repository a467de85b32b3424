"""Keys of `hardware.*`: how fast, never what.  Changing one of these does not change the gradient."""

from dataclasses import dataclass

from rlvr.keys import UsedIf, key

_ZERO3 = UsedIf("hardware.zero is 3", lambda c: c.zero == 3)
_CUDA = UsedIf("hardware.device is cuda", lambda c: c.device == "cuda")


@dataclass(kw_only=True)
class HardwareConfig:
    """Devices, memory and parallelism."""

    device: str = key("what the models run on; also picks gloo or NCCL", choices=("cpu", "cuda"))
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
    tokens_per_micro_batch: int = key("most tokens of one forward and backward on a rank", unit="tokens", low=1)
    head_chunk: int = key("tokens whose logits exist at the same time", unit="tokens", low=1)
    tensor_parallel: int = key("ranks that share one sampler engine", low=1)
    sampler_memory: float = key(
        "memory of the sampler: GiB of KV cache on a CPU, share of the device's memory on a GPU", above=0
    )
    sampler_sequences: int = key("sequences that the sampler decodes at the same time", unit="sequences", low=1)
    sampler_eager: bool = key("sample without compiled graphs: starts sooner, decodes slower on a GPU")
    sampler_sleep: bool = key("free the sampler's memory while the learner trains", used_if=_CUDA)
    timeout: float = key("a rank that stays in one phase for longer is named and the run ends", unit="seconds", above=0)
    mismatch_bound: float = key(
        "largest mean |log p_learner - log p_sampler| of one step's tokens before the run stops: past it the two "
        "engines do not hold the same weights",
        unit="nats",
        above=0,
    )
    peak_tflops: float | None = key("peak of one device, to report MFU; null leaves MFU out", unit="TFLOP/s", above=0)
