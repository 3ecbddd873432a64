"""docs/faults.md holds what it claims: enough rows, enough of them real, and each says who, how and how soon."""

import re
from pathlib import Path

from pytest_specprobe.errors import CULPRITS

PAGE = (Path(__file__).parents[2] / "docs" / "faults.md").read_text()
HOSTILE = (Path(__file__).parents[2] / "proofs" / "test_hostile.py").read_text()
COLUMNS = ["fault", "phase", "on", "seen", "culprit", "exit code", "deadline, s", "took, s"]


def rows(title: str = "The fault matrix") -> list[dict[str, str]]:
    section = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    head, *cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert head == COLUMNS
    return [dict(zip(COLUMNS, row, strict=True)) for row in cells]


def test_the_matrix_has_rows_enough_and_most_are_real() -> None:
    found = rows()
    real = [row for row in found if row["on"].startswith("SGLang")]
    assert len(found) >= 40
    assert 2 * len(real) >= len(found)
    assert len({(row["fault"], row["phase"]) for row in found}) == len(found)
    counted = re.search(r"(\d+) rows, (\d+) of them on real SGLang", PAGE)
    assert counted
    assert [int(number) for number in counted.groups()] == [len(found), len(real)]


def test_every_row_names_its_culprit_its_exit_code_and_a_deadline_that_it_kept() -> None:
    for row in rows():
        assert row["culprit"] in CULPRITS, row
        assert re.fullmatch(r"\d+|died of SIG[A-Z]+", row["exit code"]), row
        assert row["exit code"] != "0", row
        assert 0 < int(row["took, s"]) <= int(row["deadline, s"]), row
        assert row["seen"].endswith("nothing left"), row


def test_every_hostile_run_has_its_row_and_ended_as_it_should() -> None:
    """A row that failed says what was wrong in place of the words that it should have said."""
    seen = rows("Hostile runs")
    planted = re.findall(r'Fault\(name="([^"]+)"', HOSTILE)
    assert len(planted) >= 20
    assert [row["fault"] for row in seen] == planted
    for row in seen:
        assert row["culprit"] in CULPRITS, row
        assert row["seen"].endswith("nothing left"), row
        assert 0 < int(row["took, s"]) <= int(row["deadline, s"]), row


def test_kill_trials_are_counted_with_their_command() -> None:
    trials = re.findall(r"\| `python -m tests\.support\.kills ([^`]*)` \| (\d+) \| (\d+) \|", PAGE)
    assert all(leaks == "0" for _, _, leaks in trials)
    counts = [(int(count), "--real" in command) for command, count, _ in trials]
    assert sum(count for count, _ in counts) >= 200
    assert sum(count for count, real in counts if real) >= 50
