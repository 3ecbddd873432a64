"""docs/evidence.md holds tables that proofs wrote: whole, in their format, and saying what the page claims."""

import re
from pathlib import Path

import pytest

from pytest_specprobe.errors import CULPRITS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "evidence.md").read_text()
PROOF = (ROOT / "proofs" / "test_planted_faults.py").read_text()


def rows(title: str) -> list[list[str]]:
    """The cells of the first table under a title, without its head."""
    section = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def test_every_planted_fault_has_its_row() -> None:
    planted = re.findall(r'ends\(\s*"([^"]+)"', PROOF)
    assert len(planted) >= 14
    assert sorted(row[0] for row in rows("Planted faults")) == sorted(planted)


@pytest.mark.parametrize("row", rows("Planted faults"), ids=lambda row: row[0])
def test_no_planted_fault_passes(row: list[str]) -> None:
    fault, code, verdict, finding, culprit, said = row
    if fault.startswith("nothing"):
        assert (code, verdict, finding, culprit) == ("10", "undecided", "", "")
        return
    assert code == "1"
    assert verdict in {"broken", "uncorrelated", "none: invalid"}
    assert said
    assert bool(finding) == bool(culprit)
    if verdict != "uncorrelated":
        assert re.fullmatch(r"`[a-z]+\.[a-z0-9-]+`", finding)
        assert culprit in CULPRITS


def test_ours_beside_sglangs_own_client() -> None:
    table = {row[0]: row for row in rows("Beside SGLang's own benchmark client")}
    ours, theirs = table["specprobe"], table["bench_serving"]
    assert float(ours[3]) == pytest.approx(float(theirs[3]), rel=0.05)
    for client, log in ((ours, "its log, our turns"), (theirs, "its log, their turns")):
        assert float(client[1]) == pytest.approx(float(table[log][1]), rel=0.03), "in the same turns"
    (share, high) = re.findall(r"Client overhead: ([\d.]+) % \[[\d.]+, ([\d.]+)\]", PAGE)[0]
    assert float(share) <= float(high) < 2
    (same, texts) = re.findall(r"(\d+) of (\d+) of their texts are ours", PAGE)[0]
    assert same == texts


def test_no_spoiled_document_ends_in_a_traceback() -> None:
    """Some thousand inputs, each accepted or refused by name; the last row sums the others."""
    counts = {row[0]: [int(cell.replace(",", "")) for cell in row[1:]] for row in rows("Hostile data")}
    whole = counts.pop("all")
    assert whole == [sum(column) for column in zip(*counts.values(), strict=True)]
    assert whole[0] >= 3000
    assert len(counts) >= 20
    for inputs, accepted, refused, tracebacks, slow in (whole, *counts.values()):
        assert (tracebacks, slow) == (0, 0)
        assert inputs == accepted + refused
