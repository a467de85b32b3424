"""Keys of `hardware.machine.*` and `plan.*`: what `rlvr plan` takes for granted.  They change nothing in a run."""

from dataclasses import dataclass

from rlvr.keys import key


@dataclass(kw_only=True)
class MachineConfig:
    """What the machines can do, in numbers; `hardware.peak_tflops` is the peak of their matrix products."""

    nodes: int = key("machines of the job that is planned; a run takes them from its launcher", unit="machines", low=1)
    memory: float | None = key("memory of one device; null for that of this host, on a CPU", unit="GiB", above=0)
    host_memory: float | None = key("memory of one machine's host; null for this one's", unit="GiB", above=0)
    bandwidth: float | None = key("peak of one device's memory; null leaves times out", unit="GB/s", above=0)
    link: float = key("between devices of one machine, per device and direction", unit="GB/s", above=0)
    network: float = key("of one machine to the others, in one direction", unit="GB/s", above=0)
    host_link: float = key("between a device and its host, in one direction", unit="GB/s", above=0)
    latency: float = key("one hop of a collective between machines", unit="microseconds", low=0)
    overhead: float = key("memory that libraries take on each device beside every tensor", unit="GiB", low=0)
    matmul_efficiency: float = key("share of the peak of matrix products that whole passes reach", above=0, high=1)
    bandwidth_efficiency: float = key("share of the memory's peak that decoding reaches", above=0, high=1)
    network_efficiency: float = key("share of the bandwidth that collectives reach", above=0, high=1)
    layer_overhead: float = key("one decoder layer's forward on next to no tokens", unit="microseconds", low=0)
    decode_overhead: float = key("one step of the sampler with next to no model", unit="microseconds", low=0)
    sequence_overhead: float = key("each sequence of one step of the sampler", unit="microseconds", low=0)
    tensor_overhead: float = key("sending one tensor to the sampler", unit="microseconds", low=0)


@dataclass(kw_only=True)
class PlanConfig:
    """What `rlvr plan` takes for granted of the rollouts."""

    prompt_tokens: float | None = key(
        "mean length of prompts; null is a quarter of data.max_prompt_tokens", unit="tokens", above=0
    )
    completion_tokens: float | None = key(
        "mean length of completions; null is half of rollout.max_tokens", unit="tokens", above=0
    )
    kept: float = key("share of the drawn prompts that are trained on", unit="fraction", above=0, high=1)
    verify_seconds: float = key("judging one completion, in one verifier process", unit="seconds", low=0)
