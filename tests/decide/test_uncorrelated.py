"""``uncorrelated`` takes both: first drafts no better than the control's at the same places, and L no longer."""

import pytest

from pytest_specprobe.decide.evidence import Evidence
from pytest_specprobe.decide.verdict import Decision, decide
from pytest_specprobe.measure.request import Estimate
from pytest_specprobe.profiles import Gate
from tests.support.evidence import e, seen

LEVEL, BELOW, ABOVE = Estimate(0.01, -0.02, 0.04, 24), e(-0.1), e(0.2)


def p1(got: Decision) -> str:
    (check,) = [check for check in got.gate_checks if check.name == "p1_margin"]
    return check.result


@pytest.mark.parametrize(
    ("margin", "length_margin", "candidates", "gate"),
    [
        (LEVEL, None, ["uncorrelated"], "fail"),
        (LEVEL, BELOW, ["uncorrelated"], "fail"),
        (LEVEL, LEVEL, ["uncorrelated"], "fail"),
        (BELOW, BELOW, ["uncorrelated"], "fail"),
        (LEVEL, ABOVE, ["finetune"], "pass"),
        (BELOW, ABOVE, ["finetune"], "pass"),
        (ABOVE, BELOW, ["finetune"], "pass"),
    ],
)
def test_both_must_say_so(margin: Estimate, length_margin: Estimate | None, candidates: list[str], gate: str) -> None:
    got = decide(seen(margin=margin, length_margin=length_margin), gate=Gate())
    assert list(got.candidates) == candidates
    assert p1(got) == gate


@pytest.mark.parametrize(
    ("margin", "length_margin", "candidates"),
    [
        (BELOW, LEVEL, ["uncorrelated", "finetune"]),
        (LEVEL, BELOW, ["uncorrelated", "finetune"]),
        (BELOW, BELOW, ["uncorrelated"]),
        (LEVEL, ABOVE, ["finetune"]),
    ],
)
def test_with_few_prompts_only_what_both_say_surely(
    margin: Estimate, length_margin: Estimate, candidates: list[str]
) -> None:
    got = decide(seen(n=12, margin=margin, length_margin=length_margin), gate=Gate())
    assert list(got.candidates) == candidates


def told(evidence: Evidence) -> list[str]:
    return [reason for reason in decide(evidence, gate=Gate()).reasons if "control" in reason]


def test_the_reason_names_both() -> None:
    (reason,) = told(seen(margin=LEVEL, length_margin=BELOW))
    assert "margin 0.01 [-0.02, 0.04]" in reason
    assert "-0.1 [-0.11, -0.09]" in reason
    (reason,) = told(seen(margin=LEVEL, length_margin=ABOVE))
    assert "accept length" in reason
    assert told(seen(length_margin=ABOVE)) == []


def test_a_margin_that_straddles_asks_for_no_prompts_once_the_accept_length_tells() -> None:
    small = Estimate(0.02, -0.002, 0.042, 24)
    assert decide(seen(margin=small, length_margin=LEVEL), gate=Gate()).more_prompts is not None
    assert decide(seen(margin=small, length_margin=ABOVE), gate=Gate()).more_prompts is None
