"""The gate's table over a run."""

import io

from rich.console import Console

from rlvr.ops.stats import anchored_probability, mixed_probability
from rlvr.trainer.gates import expected_retention, gate_table


def outcome(solved, kept, rejected=(), by_reference=0, tries=0, name="p", source="s"):
    return {
        "id": name,
        "source": source,
        "position": 0,
        "kept": kept,
        "rejected": list(rejected),
        "policy_judged": 4,
        "policy_solved": solved,
        "reference_judged": tries,
        "reference_solved": by_reference,
    }


def test_without_rejections_there_is_no_table():
    assert gate_table([outcome(2, True), outcome(1, True)]) is None


def test_the_table_tells_rates_by_source_and_reason():
    rows = [
        outcome(2, True, by_reference=1, tries=2),
        outcome(0, False, ["not_mixed", "no_anchor"], tries=2),
        outcome(4, False, ["not_mixed"], by_reference=2, tries=2),
        outcome(1, False, ["no_anchor"], tries=2, source="other"),
    ]
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(gate_table(rows))
    told = {line[:30].strip(): line[30:].split() for line in console.export_text().splitlines()}
    assert told["tried"] == ["3", "1"]
    assert told["kept"] == ["33.3%", "0.0%"]
    assert told["rejected, not_mixed"] == ["66.7%", "0.0%"]
    assert told["rejected, no_anchor"] == ["33.3%", "100.0%"]
    assert told["solved by policy, kept"] == ["0.50", "-"]
    assert told["solved by policy, rejected"] == ["0.50", "0.25"]
    assert told["solved by reference, kept"] == ["0.50", "-"]


def test_expected_retention_pools_the_tries_of_a_prompt():
    own = [outcome(1, True), outcome(3, True)]
    assert expected_retention(own) == mixed_probability(4.5 / 9, 4)
    anchored = [outcome(2, True, by_reference=1, tries=2)]
    assert expected_retention(anchored) == anchored_probability(2.5 / 5, 1.5 / 3, 4, 2)
