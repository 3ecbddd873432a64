"""docs/faults.md holds what it claims: enough rows, enough of them real, and each says who, how and how soon."""

import re
from pathlib import Path

from pytest_specprobe.errors import CULPRITS

PAGE = (Path(__file__).parents[2] / "docs" / "faults.md").read_text()
COLUMNS = ["fault", "phase", "on", "seen", "culprit", "exit code", "deadline, s", "took, s"]


def rows() -> list[dict[str, str]]:
    lines = [line for line in PAGE.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    at = cells.index(COLUMNS)
    return [dict(zip(COLUMNS, row, strict=True)) for row in cells[at + 1 :] if len(row) == len(COLUMNS)]


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


def test_kill_trials_are_counted_with_their_command() -> None:
    trials = re.findall(r"\| `python -m tests\.server\.kills ([^`]*)` \| (\d+) \| (\d+) \|", PAGE)
    assert all(leaks == "0" for _, _, leaks in trials)
    counts = [(int(count), "--real" in command) for command, count, _ in trials]
    assert sum(count for count, _ in counts) >= 200
    assert sum(count for count, real in counts if real) >= 50
