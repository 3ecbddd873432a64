"""A drafter pays only if whole requests, first-token time included, are not slower either."""

import pytest

from pytest_specprobe.decide.evidence import Evidence
from pytest_specprobe.decide.verdict import decide
from pytest_specprobe.measure.request import Estimate
from pytest_specprobe.profiles import Gate
from tests.support.evidence import e, seen

FASTER = e(1.06, 0.04)
SLOWER, UNSURE, EVEN = e(0.93, 0.04), e(1.02, 0.05), Estimate(1.03, 1.0, 1.06, 24)


@pytest.mark.parametrize(
    ("end_to_end", "headroom", "verdict", "candidates"),
    [
        (e(1.05, 0.03), 1.4, "profitable", ["profitable"]),
        (EVEN, 1.4, "profitable", ["profitable"]),
        (None, 1.4, "profitable", ["profitable"]),
        (SLOWER, 1.4, "finetune", ["finetune"]),
        (SLOWER, 0.9, "verify-bound", ["verify-bound"]),
        (UNSURE, 1.4, "undecided", ["profitable", "finetune"]),
        (UNSURE, 0.9, "undecided", ["profitable", "verify-bound"]),
    ],
)
def test_both_speedups_decide(
    end_to_end: Estimate | None, headroom: float, verdict: str, candidates: list[str]
) -> None:
    got = decide(seen(speedup=FASTER, end_to_end=end_to_end, headroom=e(headroom)), gate=Gate())
    assert (got.verdict, list(got.candidates)) == (verdict, candidates)


def test_fast_whole_requests_do_not_make_slow_decoding_pay() -> None:
    got = decide(seen(speedup=e(0.8), end_to_end=e(1.2)), gate=Gate())
    assert got.verdict == "finetune"


def told(evidence: Evidence) -> list[str]:
    return [reason for reason in decide(evidence, gate=Gate()).reasons if "whole requests" in reason]


@pytest.mark.parametrize(("end_to_end", "how"), [(SLOWER, "is below 1.0"), (UNSURE, "straddles 1.0")])
def test_the_reason_says_that_the_first_token_eats_the_gain(end_to_end: Estimate, how: str) -> None:
    (reason,) = told(seen(speedup=FASTER, end_to_end=end_to_end))
    assert how in reason
    assert "first-token time included" in reason
    assert told(seen(speedup=FASTER, end_to_end=e(1.05, 0.03))) == []
    assert told(seen(speedup=e(0.8), end_to_end=e(0.7))) == []


def test_what_pays_beside_a_number_pays_as_far_as_is_known() -> None:
    (reason,) = told(seen(speedup=FASTER, end_to_end=None))
    assert "not compared" in reason


def test_more_prompts_settle_what_only_whole_requests_leave_open() -> None:
    nearly = e(1.03, 0.035)
    got = decide(seen(speedup=FASTER, end_to_end=nearly, headroom=e(1.4)), gate=Gate())
    assert got.more_prompts is not None
    assert any("more prompts" in step for step in got.next)


def test_on_a_crowded_machine_whole_requests_count_for_nothing_either() -> None:
    assert seen(end_to_end=SLOWER).without_times().end_to_end is None
