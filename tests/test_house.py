"""The rules of the house: floors, doors, sizes, and what may not be written anywhere."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from rlvr.schema import ALGORITHM_SCHEMAS

ROOT = Path(__file__).parent.parent
HOUSE = ROOT / "rlvr"
FLOORS = [  # from the ground up: a room imports from itself and from lower floors, never up or across
    {"rendezvous"},
    {"keys", "clock", "leave", "peers", "world", "tally", "watchdog"},
    {"redact", "naming"},
    {"schema", "records", "ops"},
    {"batch", "plan"},
    {"algorithms", "verifiers", "data"},
    {"engine"},
    {"rollout"},
    {"trainer"},
    {"config"},
    {"evaluation"},
    {"worker", "report"},
    {"launch", "manual", "grade", "data_cli", "plan_cli", "export"},
    {"survey", "sweep", "submit", "eval_cli", "arms", "rerun"},
    {"cli"},
]
DOORS = {  # heavy guests, and the only places that let them in
    "torch.distributed": ("rendezvous.py", "world.py", "launch/local.py"),
    "deepspeed": ("engine/",),
    "vllm": ("engine/sampler.py",),
    "hydra": ("config.py", "sweep/batch.py", "evaluation/settings.py"),
    "omegaconf": ("config.py", "sweep/batch.py", "evaluation/settings.py"),
    "wandb": ("trainer/record.py",),
}
TORCH_FREE = {
    "keys",
    "redact",
    "naming",
    "clock",
    "tally",
    "schema",
    "records",
    "verifiers",
    "data",
    "config",
    "plan",
    "plan_cli",
    "manual",
    "grade",
    "data_cli",
    "survey",
    "sweep",
    "submit",
    "eval_cli",
    "report",
    "arms",
    "rerun",
    "cli",
}
RANK_ZERO = ("world.py", "rendezvous.py", "peers.py", "trainer/record.py", "trainer/checkpoint.py", "launch/")
# they write files
LEADER = (
    *RANK_ZERO,
    "cli.py",
    "submit.py",
    "survey.py",
    "sweep/run.py",
    "eval_cli.py",
    "evaluation/",
    "engine/export.py",
    "engine/reference.py",
    "trainer/run.py",
    "trainer/survey_",
)
FILES = sorted(HOUSE.rglob("*.py"))
TEXTS = [*FILES, *sorted((ROOT / "conf").rglob("*.yaml")), *sorted((ROOT / "scripts").rglob("*.py"))]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


each_file = pytest.mark.parametrize("path", FILES, ids=name_of)
each_text = pytest.mark.parametrize("path", TEXTS, ids=name_of)


def imports(path: Path) -> Iterator[str]:
    """Dotted names of all imports, also of those inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def room_of(path: Path) -> str:
    return path.relative_to(HOUSE).parts[0].removesuffix(".py")


def floor(room: str) -> int:
    found = [level for level, rooms in enumerate(FLOORS) if room in rooms]
    assert found, f"{room} stands on no floor: add it to FLOORS"
    return found[0]


def inside(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


@each_file
def test_imports_only_go_down(path: Path) -> None:
    here = room_of(path)
    for module in imports(path):
        room = module.split(".")[1] if inside(module, "rlvr") and "." in module else here
        if room == here or room.startswith("__"):
            continue
        lazily_up = (here, room) == ("launch", "worker")
        assert floor(room) < floor(here) or lazily_up, f"{name_of(path)} reaches up or across to {module}"


@each_file
def test_heavy_guests_use_their_door(path: Path) -> None:
    here = str(path.relative_to(HOUSE))
    for module in imports(path):
        for guest, doors in DOORS.items():
            if inside(module, guest):
                assert here.startswith(doors), f"{here} imports {module}; only {', '.join(doors)} may"
        if room_of(path) in TORCH_FREE:
            assert not inside(module, "torch"), f"{here} must not need torch"


def test_the_command_line_starts_without_torch() -> None:
    heavy = ("torch", "transformers", "vllm", "deepspeed", "datasets", "wandb")
    code = f"import sys, rlvr.cli; print(*[name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@each_file
def test_files_and_functions_are_short(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < 60, f"{node.name} is too long"
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            count = sum(a.arg not in ("self", "cls") for a in arguments)
            is_key = name_of(path) == "rlvr/keys.py" and node.name == "key"
            assert count <= 8 or is_key, f"{node.name} takes {count} parameters"


def targets_of(node: ast.AST) -> list[ast.expr]:
    """What a statement assigns to."""
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else []


@each_file
def test_configuration_is_never_rewritten(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        for target in targets_of(node):
            if isinstance(target, ast.Attribute):
                ours = re.match(r"(self\.)?config(\.|$)", ast.unparse(target.value))
                assert not ours, f"line {target.lineno}: {ast.unparse(target)} = ..."
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr":  # stages: the one way round the rule
            assert name_of(path) == "rlvr/schema/stages.py", f"line {node.lineno}: {ast.unparse(node)}"


@each_file
def test_only_the_writers_ask_for_their_rank(path: Path) -> None:
    here, text = str(path.relative_to(HOUSE)), path.read_text()
    if re.search(r"(?<!local_)rank\s*[!=]=\s*0", text):
        assert here.startswith(RANK_ZERO), f"{here} compares its rank to 0"
    if re.search(r"\bis_leader\(|\.leader\b", text):
        assert here.startswith(LEADER), f"{here} asks whether it leads"


@each_text
def test_nothing_unfinished_or_private(path: Path) -> None:
    text = path.read_text()
    assert text.isascii()
    for word in (r"\bTODO\b", r"\bFIXME\b", r"\bXXX\b", r"/work/", r"/home/", r"\.\./shared", r"breakpoint\(\)"):
        assert not re.search(word, text), f"{name_of(path)} contains {word}"


@each_file
def test_no_exception_is_swallowed(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ExceptHandler):
            everything = node.type is None or ast.unparse(node.type) in ("Exception", "BaseException")
            silent = all(isinstance(line, ast.Pass | ast.Continue) for line in node.body)
            assert not (everything and silent), f"line {node.lineno} swallows any exception"


@each_file
def test_nothing_is_unpickled(path: Path) -> None:
    """A checkpoint may come from a stranger; safetensors and JSON cannot run code."""
    forbidden = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "torch.load"}
    assert not forbidden & {module.split(".")[0] for module in imports(path)}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in forbidden and not called.endswith(".load_checkpoint"), f"line {node.lineno}: {called}"


@each_file
def test_every_file_says_what_it_is(path: Path) -> None:
    if path.name != "__init__.py" or path.read_text().strip():
        assert ast.get_docstring(ast.parse(path.read_text())), f"{name_of(path)} has no docstring"


def test_every_algorithm_has_a_class_a_schema_and_a_file() -> None:
    from rlvr.algorithms import ALGORITHMS

    assert set(ALGORITHMS) == set(ALGORITHM_SCHEMAS)
    for name in ALGORITHMS:
        text = (ROOT / "conf" / "algorithm" / f"{name}.yaml").read_text()
        assert f"- schema/{name}\n" in text and f"\nname: {name}\n" in text
        assert "https://arxiv.org/abs/" in text.splitlines()[0]


def test_every_import_is_a_declared_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for extra in project["optional-dependencies"].values() for line in extra]
    declared = {re.split(r"[\[<>=!~ ]", line)[0] for line in [*project["dependencies"], *extras]}
    declared = {re.sub(r"[-_.]+", "-", name).lower() for name in declared}
    distributions = packages_distributions()
    for path in FILES:
        for package in {module.split(".")[0] for module in imports(path)} - set(sys.stdlib_module_names) - {"rlvr"}:
            names = {re.sub(r"[-_.]+", "-", name).lower() for name in distributions.get(package, [package])}
            assert names & declared, f"{name_of(path)} imports {package}, which pyproject.toml does not declare"
