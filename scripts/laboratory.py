"""The laboratory's tables and pictures, from its runs, into docs/laboratory.md and docs/laboratory/.

    rlvr arms lab_collapse hydra/launcher=submitit_local   # and the others of PICTURES: `make lab`
    python scripts/laboratory.py [runs=runs] [docs=docs]

Tables stand between two comments, `<!-- lab_collapse -->` and `<!-- end -->`, and only they are replaced.  Experiments
without runs are left as they are, and so are the rows of single arms without runs, if the arm that all are compared
with has the same results as on the page.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean

from rlvr.arms import load
from rlvr.ops.resample import Band, band
from rlvr.report.compare import tested, tested_rates, validated
from rlvr.report.curves import ACCURACY, SEQUENCES, curve
from rlvr.report.document import duration
from rlvr.report.families import Family, families
from rlvr.report.figures import Panel, draw, styles
from rlvr.report.problems import shared
from rlvr.report.runs import RunData, find_runs
from rlvr.report.sources import sources_of

sys.path.insert(0, str(Path(__file__).parent / "bench"))
from _runs import settings  # noqa: E402

PICTURES: dict[str, dict[str, list[str]]] = {  # at most six lines can be told apart
    "lab_collapse": {
        "main": ["dapo", "dapo_gate", "armor", "kl_k2_1", "large_set"],
        "kl": ["dapo", "kl_k2_01", "kl_k2_1", "kl_k3_1"],
        "small_kl": ["dapo", "kl_k2_001", "kl_k3_001", "kl_k3_01"],
        "ablations": ["armor", "armor_no_gate", "armor_plain_ratio", "armor_mixture_only", "armor_any_anchor"],
        "more_ablations": ["dapo", "armor_mix_on_anchors", "armor_conditional", "armor_reset_1"],
        "resets": ["armor", "armor_reset_50", "dapo"],
    },
    "lab_starts": {"starts": ["collapsed_dapo", "collapsed_armor", "collapsed_kl_k3_1", "best_dapo", "best_armor"]},
    "lab_worked": {"main": ["dapo", "large_set", "armor"]},
    "lab_prolong": {
        "resets": ["no_reset", "schedule", "schedule_optimizer_kept", "trigger", "no_kl"],
        "tiny_kl": ["tiny_kl", "tiny_kl_schedule", "no_kl"],
    },
    "lab_one_rollout": {
        "methods": ["grpo", "rloo", "ppo", "rebel", "astar_po"],
        "astar_po": ["astar_po", "astar_po_n2", "astar_po_n4", "astar_po_mean", "astar_po_beta_policy"],
    },
    "lab_half_unsolvable": {"methods": ["grpo", "astar_po", "astar_po_drop"]},
}
LEARNING = Panel("accuracy", "Validation accuracy and training score", "fraction correct", (ACCURACY, "rollout/score"))
TRAINED_ON = {  # the source whose accuracies are told; the others have one
    "lab_collapse": "two",
    "lab_starts": "two",
    "lab_worked": "three",
    "lab_half_unsolvable": "arithmetic",
}
VALIDATION = ["validation, step 0", "best", "last"]
TEST = ["training, last", "test", "minus the first arm's"]
COST = ["at equal time, minus the first arm's", "sequences", "time", "GiB"]
END = "<!-- end -->"
LATE = 0.1  # share of a run's steps that "training, last" is the mean of


def table(found: Sequence[Family], source: str | None) -> str:
    """Markdown of one experiment; the first family is what the others are compared with.

    Args:
        source: the only one whose accuracies are told, but for the test of the others.
    """
    others = [name for name in sources_of(found) if name != source] if source else []
    head = ["arm", *VALIDATION, *TEST, *(f"test, {name}" for name in others), *COST]
    rows = [_cells(family, found[0], source, others) for family in found]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *rows])


def _cells(family: Family, base: Family, source: str | None, others: Sequence[str]) -> list[str]:
    learned = curve(family, f"{ACCURACY}/{source}" if source else ACCURACY)
    return [
        f"`{family.name}`",
        f"{learned.band.mean_T[0]:.2f}",
        f"{max(learned.band.mean_T[1:]):.2f} at step {learned.x_T[1:][learned.band.mean_T[1:].argmax()]:.0f}",
        short(learned.band),
        f"{mean(trained(run) for run in family.runs):.2f}",
        _test(family, source),
        "" if family is base else short(tested(base, family, source).band, signed=True),
        *(_test(family, name) for name in others),
        "" if family is base else short(validated(base, family, "seconds", source).band, signed=True),
        f"{mean(sampled(run) for run in family.runs):,.0f}",
        duration(mean(run.summary["total/seconds"] for run in family.runs)),
        f"{mean(run.summary['memory/peak_gib'] for run in family.runs):.2f}",
    ]


def joined(old: str, new: str, order: Sequence[str]) -> str:
    """A table with the rows of an older one of the same experiment, where it has none for their arms.

    Args:
        old, new: Markdown; `old` may be empty.
        order: of the arms.

    Raises:
        SystemExit: if the first arm's results differ, so that the others do not stand beside each other.
    """
    (head, rule, *rows), (_, _, *before) = new.splitlines(), old.splitlines() or ["", ""]
    arms, kept = ({row.split("`")[1]: row for row in told} for told in (rows, before))
    kept = {arm: row for arm, row in kept.items() if arm in order and arm not in arms}
    base = order[0]
    if kept and result(arms.get(base, "")) != result(before[0]):
        sys.exit(f"{base} had other results when {', '.join(kept)} were run: run these too")
    return "\n".join([head, rule, *((arms | kept)[arm] for arm in order if arm in arms | kept)])


def result(row: str) -> list[str]:
    """The cells of a row that are equal whenever it is run again."""
    return row.split(" | ")[: 1 + len(VALIDATION) + len(TEST)]


def _test(family: Family, source: str | None) -> str:
    return short(band(tested_rates(family, shared(family.runs, "test", source), source)))


def sampled(run: RunData) -> float:
    """Sequences of policy and reference, those of a survey left out."""
    return sum(row.get(name) or 0.0 for row in run.rows for name in SEQUENCES)


def short(found: Band, signed: bool = False) -> str:
    """The last mean with its interval, to two digits."""
    sign = "+" if signed else ""
    at = f"{found.mean_T[-1]:{sign}.2f}"
    return at if found.low_T is None else f"{at} [{found.low_T[-1]:{sign}.2f}, {found.high_T[-1]:{sign}.2f}]"


def trained(run: RunData) -> float:
    """Score of the training completions at the end of a run."""
    rows = [row["rollout/score"] for row in run.rows if row.get("rollout/score") is not None]
    return mean(rows[-max(1, int(LATE * len(rows))) :])


def pictures(name: str, found: Sequence[Family], folder: Path) -> None:
    """Of each choice of arms, validation in full and the training score dotted."""
    by_name = {family.name: family for family in found}
    for choice, arms in PICTURES[name].items():
        if not by_name.keys() >= set(arms):  # the picture there is shows more
            continue
        chosen = [by_name[arm] for arm in arms]
        source = TRAINED_ON.get(name)
        metrics = (f"{ACCURACY}/{source}" if source else ACCURACY, "rollout/score")
        draw(replace(LEARNING, name=f"{name}_{choice}", metrics=metrics), chosen, styles(chosen), folder)


def main() -> None:
    """Write what there are runs for."""
    given = settings(runs="runs", docs="docs")
    page = Path(given["docs"]) / "laboratory.md"
    text = page.read_text(encoding="utf-8")
    for name in PICTURES:
        root = Path(given["runs"]) / name
        if not root.exists():
            print(f"{name}: no runs in {root}")
            continue
        order = list(load(name).arms)
        found = [family for family in families(find_runs([root])) if all(run.finished for run in family.runs)]
        found.sort(key=lambda family: order.index(family.name))
        before, mark, after = text.partition(f"<!-- {name} -->\n")
        old, end, rest = after.partition(END)
        text = before + mark + joined(old, table(found, TRAINED_ON.get(name)), order) + "\n" + end + rest
        pictures(name, found, Path(given["docs"]) / "laboratory")
        print(f"{name}: {len(found)} arms, {sum(len(family.runs) for family in found)} runs")
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
