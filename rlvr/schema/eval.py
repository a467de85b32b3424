"""Keys of `rlvr eval`: which checkpoint answers which benchmarks, and how."""

import re
from dataclasses import dataclass, replace

from rlvr.keys import ConfigError, key
from rlvr.schema.data import DataConfig
from rlvr.schema.hardware import HardwareConfig
from rlvr.schema.model import ModelConfig


@dataclass(kw_only=True)
class BenchmarkConfig:
    """One benchmark: problems, the verifier that comes with them, and how they are answered."""

    data: DataConfig = key("its problems: a data set of conf/data/, chosen in the benchmark's YAML")
    role: str = key("which of its rows", choices=("test", "validation", "train"))
    rows: int = key("the first so many of them; 0 for all", unit="rows", low=0)
    samples: int = key("completions per problem (n)", unit="sequences", low=1)
    temperature: float = key("sampling temperature; 0 is greedy", low=0)
    top_p: float = key("nucleus sampling", above=0, high=1)
    max_tokens: int = key("length limit of a completion", unit="tokens", low=1)
    k: list[int] = key("which pass@k are reported, each at most `samples`; empty for 1, 2, 4, ... samples", empty=list)


@dataclass(kw_only=True)
class EverywhereConfig:
    """Values that every benchmark of the suite takes instead of its own; null leaves its own."""

    rows: int | None = key("the first so many rows; 0 for all", unit="rows", low=0)
    samples: int | None = key("completions per problem (n)", unit="sequences", low=1)
    temperature: float | None = key("sampling temperature; 0 is greedy", low=0)
    top_p: float | None = key("nucleus sampling", above=0, high=1)
    max_tokens: int | None = key("length limit of a completion", unit="tokens", low=1)


@dataclass(kw_only=True)
class SuiteConfig:
    """What is answered."""

    name: str = key("name of the suite, as in conf/eval/")
    benchmarks: dict[str, BenchmarkConfig] = key("named benchmarks", empty=dict)
    everywhere: EverywhereConfig = key("values for all benchmarks")


@dataclass(kw_only=True)
class EvalRunConfig:
    """Identity of the evaluation."""

    name: str = key("name of the evaluation; its directory is evaluations/<name> unless hydra.run.dir says otherwise")


@dataclass(kw_only=True)
class GradingConfig:
    """The pool of verifier processes."""

    workers: int = key("verifier processes per rank", unit="processes", low=1)
    timeout: float = key("wall clock of one response, as in training", unit="seconds", above=0)


@dataclass(kw_only=True)
class EvalConfig:
    """All of `rlvr eval`."""

    checkpoint: str | None = key(
        "what is evaluated: a run directory (its model/), one of its checkpoints, a Hugging Face folder or name; null "
        "for what `model` names"
    )
    origin: str | None = key(
        "directory of the run that made the checkpoint, where that does not tell: it says how the model is spoken to "
        "and which data it has seen; null for none"
    )
    seed: int = key("seed of sampling", low=0)
    run: EvalRunConfig = key("identity of the evaluation")
    model: ModelConfig = key("how the model is spoken to; a run that is evaluated says that itself")
    hardware: HardwareConfig = key("what it runs on")
    verify: GradingConfig = key("judging of answers")
    eval: SuiteConfig = key("what is answered")


def settled(suite: SuiteConfig) -> dict[str, BenchmarkConfig]:
    """The benchmarks as they are run: with the values that all of them take, and their k spelt out."""
    common = {name: value for name, value in vars(suite.everywhere).items() if value is not None}
    found = {}
    for name, benchmark in suite.benchmarks.items():
        own = replace(benchmark, **common)
        found[name] = replace(own, k=sorted(set(own.k)) or _powers(own.samples))
    return found


def _powers(samples: int) -> list[int]:
    """1, 2, 4, ... and `samples` itself."""
    return [*(2**i for i in range(samples.bit_length()) if 2**i < samples), samples]


def check_eval(config: EvalConfig) -> None:
    """Contradictions between keys.

    Raises:
        ConfigError: naming the keys and a way out.
    """
    if not config.eval.benchmarks:
        raise ConfigError("eval.benchmarks is empty: choose a suite, such as eval=smoke")
    if config.hardware.device == "cpu" and config.hardware.dtype == "bf16":
        raise ConfigError("hardware.dtype=bf16 with hardware.device=cpu: bf16 matmuls are over 10 x slower; use fp32")
    for name, benchmark in settled(config.eval).items():
        _check_benchmark(f"eval.benchmarks.{name}", name, benchmark)


def _check_benchmark(where: str, name: str, benchmark: BenchmarkConfig) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise ConfigError(f"{where}: the name of a benchmark has letters, digits, _ and - only; it names a file")
    if benchmark.k[0] < 1 or benchmark.k[-1] > benchmark.samples:
        wrong = benchmark.k[0] if benchmark.k[0] < 1 else benchmark.k[-1]
        raise ConfigError(
            f"{where}.k has {wrong}, but with samples={benchmark.samples} an unbiased pass@k needs 1 <= k <= "
            f"{benchmark.samples}; raise {where}.samples, or set {where}.k=[]"
        )
    if benchmark.temperature == 0 and benchmark.samples > 1:
        raise ConfigError(f"{where}: {benchmark.samples} samples at temperature 0 are the same greedy answer; use 1")
    if not any(getattr(source, benchmark.role) is not None for source in benchmark.data.sources.values()):
        raise ConfigError(f"{where}.role={benchmark.role}: no source of data={benchmark.data.name} has such rows")
