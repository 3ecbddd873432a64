import pytest

from pytest_specprobe.report.exit_code import Failure, Outcome, exit_code
from pytest_specprobe.report.model.report import DrafterReport


def entry(verdict: str | None, gate: str | None, name: str = "d") -> dict[str, DrafterReport]:
    return {name: DrafterReport.model_construct(None, verdict=verdict, gate=gate)}


@pytest.mark.parametrize(
    ("exitstatus", "failures", "verdict", "gate", "expected"),
    [
        (0, set(), "profitable", "pass", 0),
        (1, {"failed"}, "broken", "fail", 1),
        (1, {"failed"}, "uncorrelated", "fail", 1),
        (0, set(), "verify-bound", "fail", 1),  # the gate fails though every selected test passed
        (1, {"inconclusive"}, "undecided", "inconclusive", 10),
        (0, set(), "undecided", "inconclusive", 10),
        (1, {"inconclusive", "failed"}, "undecided", "inconclusive", 1),
        (1, {"impossible"}, None, "error", 11),
        (1, {"impossible", "failed"}, None, "error", 11),
        (0, set(), None, None, 11),  # acceptance was selected and there is no verdict: never green
        (1, {"failed"}, None, "error", 1),  # an invalid measurement
        (4, set(), None, None, 4),
        (3, {"failed"}, "profitable", "pass", 3),
        (2, {"impossible"}, None, "error", 2),
    ],
)
def test_first_rule_that_applies(
    exitstatus: int, failures: set[Failure], verdict: str | None, gate: str | None, expected: int
) -> None:
    outcome = Outcome(failures=failures, wanted={"d"})
    assert exit_code(exitstatus, outcome, entry(verdict, gate), static=False) == expected


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize(
    ("verdict", "gate", "expected"),
    [("broken", "fail", 1), ("undecided", "inconclusive", 10), (None, "error", 11), ("finetune", "pass", 0)],
)
def test_the_gate_of_a_drafter_that_was_not_to_be_measured_counts_too(
    verdict: str | None, gate: str, expected: int, *, static: bool
) -> None:
    assert exit_code(0, Outcome(), entry(verdict, gate), static=static) == expected


def test_a_narrowed_run_needs_no_verdict() -> None:
    assert exit_code(0, Outcome(), entry(None, None), static=True) == 0
    assert exit_code(0, Outcome(), entry(None, None), static=False) == 0


def test_two_drafters_are_as_bad_as_the_worse_one() -> None:
    outcome = Outcome(wanted={"good", "bad"})
    entries = entry("profitable", "pass", "good") | entry("undecided", "inconclusive", "bad")
    assert exit_code(0, outcome, entries, static=False) == 10
