"""Generated puzzles of the reasoning-gym package: logic, algebra, games, each with its own scorer."""

import importlib
import json
from hashlib import blake2b
from pathlib import Path
from types import ModuleType
from typing import Any

from rlvr.data.rows import DEAL, Raw, check_options, count, normalised, whole
from rlvr.keys import ConfigError, nearest
from rlvr.records import Role
from rlvr.schema.data import SourceConfig

OPTIONS = ("tasks", "config", "seed")

# Tasks with many right answers give none as "the" answer, but show one in their metadata.
EXAMPLE = {
    "graph_color": "possible_answer",
    "propositional_logic": "example_answer",
    "rubiks_cube": "example_correct_answer",
}
LOW = 0.1  # the most that an empty answer may score


def read(source: SourceConfig, name: str, role: Role, base: Path) -> list[Raw]:
    """Rows of one role, tasks mixed evenly by weight; no question appears twice, within or across roles.

    Raises:
        ConfigError: if reasoning-gym is missing, an option or task is wrong, a task fails its smoke test
            or cannot make as many different questions as asked.
    """
    check_options(source, name, OPTIONS, required=("tasks", "seed"))
    gym, seed = _package(name), whole(source, name, "seed", 0)
    weights = _weights(gym, source, name)
    seen: set[str] = set()
    made: list[tuple[float, Raw]] = []
    for each in DEAL[: DEAL.index(role) + 1]:
        shares = apportion(count(source, name, each), weights)
        made = []
        for task, share in shares.items():
            config = source.options.get("config", {}).get(task, {})
            entries = _entries(gym, task, config, _seed(seed, each, task), share, seen, f"data.sources.{name}")
            about = {"task": task, "config": config} if config else {"task": task}
            made += [((i + 0.5) / share, Raw(0, e["question"], {**about, "entry": e})) for i, e in enumerate(entries)]
    made.sort(key=lambda pair: pair[0])
    return [Raw(number, raw.question, raw.answer) for number, (_, raw) in enumerate(made)]


def apportion(total: int, weights: dict[str, float]) -> dict[str, int]:
    """`total` split into whole shares in proportion to the weights, largest remainders first."""
    whole_sum = sum(weights.values())
    exact = {task: total * weight / whole_sum for task, weight in weights.items()}
    shares = {task: int(share) for task, share in exact.items()}
    by_remainder = sorted(exact, key=lambda task: shares[task] - exact[task])
    for task in by_remainder[: total - sum(shares.values())]:
        shares[task] += 1
    return shares


def smoke_test(dataset: Any, entry: dict[str, Any]) -> None:
    """Does the task's scorer work: its own gold scores 1, an empty answer and None score low, nothing raises.

    Raises:
        ValueError: saying what went wrong.
    """
    for answer, fits, wanted in (
        (entry["answer"], lambda score: score == 1, "1"),
        ("", lambda score: score <= LOW, f"at most {LOW}"),
        (None, lambda score: score <= LOW, f"at most {LOW}"),
    ):
        try:
            score = dataset.score_answer(answer, entry)
        except Exception as error:  # third-party scorers raise anything
            raise ValueError(f"scoring {answer!r} raised {type(error).__name__}: {error}") from error
        if not fits(score):
            raise ValueError(f"answer {answer!r} scores {score}, expected {wanted}")


def _package(name: str) -> ModuleType:
    try:
        return importlib.import_module("reasoning_gym")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"data.sources.{name}.kind=gym needs the package reasoning-gym: pip install 'rlvr[gym]'"
        ) from error


def _weights(gym: ModuleType, source: SourceConfig, name: str) -> dict[str, float]:
    where, tasks, known = f"data.sources.{name}.options", source.options["tasks"], gym.factory.DATASETS
    weights = tasks if isinstance(tasks, dict) else dict.fromkeys(tasks, 1.0) if isinstance(tasks, list) else {}
    if not weights:
        raise ConfigError(f"{where}.tasks={tasks}: must be a list of tasks or a mapping of tasks to weights")
    for task in [*weights, *source.options.get("config", {})]:
        if task not in known:
            hint = nearest(task, known)
            raise ConfigError(
                f"{where}: reasoning-gym has no task {task}" + (f"; did you mean {hint}?" if hint else "")
            )
    for task in source.options.get("config", {}):
        if task not in weights:
            raise ConfigError(f"{where}.config.{task} is set but has no effect: {task} is not in {where}.tasks")
    for task, weight in weights.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not weight > 0:
            raise ConfigError(f"{where}.tasks.{task}={weight}: must be a weight greater than 0")
    return weights


def _seed(seed: int, role: Role, task: str) -> int:
    """Far apart for every role and task: reasoning-gym seeds its i-th entry with seed + i."""
    return int.from_bytes(blake2b(f"{seed}/{role}/{task}".encode(), digest_size=4).digest(), "little") >> 1


def _entries(
    gym: ModuleType, task: str, config: dict[str, Any], seed: int, share: int, seen: set[str], where: str
) -> list[dict[str, Any]]:
    """`share` entries whose questions are not in `seen`, which grows."""
    tries = 4 * share + 64
    try:
        dataset = gym.create_dataset(task, size=tries, seed=seed, **config)
    except (TypeError, ValueError, AssertionError) as error:
        raise ConfigError(f"{where}.options.config.{task}: {error}") from error
    entries: list[dict[str, Any]] = []
    for index in range(tries):
        if len(entries) == share:
            return entries
        try:
            entry = _storable(task, dataset[index])
            if not entries:
                smoke_test(dataset, entry)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{where}: task {task} cannot be used, leave it out: {error}") from error
        if (question := normalised(entry["question"])) not in seen:
            seen.add(question)
            entries.append(entry)
    raise ConfigError(
        f"{where}: task {task} made only {len(entries)} new questions in {tries} tries, {share} were asked for; "
        f"lower its weight or the counts, or make it more varied with options.config.{task}"
    )


def _storable(task: str, entry: dict[str, Any]) -> dict[str, Any]:
    """The entry after a trip through JSON, as it will be stored, with a right answer filled in."""
    if task in EXAMPLE:
        example = entry["metadata"][EXAMPLE[task]]
        entry = {**entry, "answer": example if isinstance(example, str) else json.dumps(example)}
    return json.loads(json.dumps(entry))
