"""The table of verdicts: each row, each boundary, what stays possible, and the gate on top."""

import json
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_specprobe.decide.breakeven import measured_break_even
from pytest_specprobe.decide.prompts_needed import prompts_needed
from pytest_specprobe.decide.verdict import Decision, decide
from pytest_specprobe.measure.request import Estimate
from pytest_specprobe.profiles import Gate
from tests.support.evidence import e, finding, seen

GATE = Gate()


# --- the rows, in order ------------------------------------------------------------------------------------------


def test_a_failed_check_is_broken_whatever_was_measured() -> None:
    got = decide(seen(speedup=e(2.0)), gate=GATE, findings=[finding("proof.not-speculating"), finding("measure.x")])
    assert (got.verdict, got.gate) == ("broken", "fail")
    assert "proof.not-speculating (engine)" in got.reasons[0]
    assert got.next == ("Do z.",)


def test_an_invalid_measurement_has_no_verdict() -> None:
    got = decide(seen(speedup=e(2.0)), gate=GATE, findings=[finding("measure.pinned")])
    assert (got.verdict, got.gate, got.candidates) == (None, "error", ())
    assert "measure.pinned" in got.reasons[1]


def test_warnings_decide_nothing() -> None:
    found = [finding("config.x", "warning"), finding("measure.stall", "warning")]
    assert decide(seen(), gate=GATE, findings=found).verdict == "finetune"


NAN = float("nan")
NUMBERS = ("accept_length", "margin", "length_margin", "tok_per_s", "speedup", "end_to_end", "headroom")


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize(
    "wrong", [Estimate(NAN, NAN, NAN, 24), Estimate(1.2, NAN, 1.3, 24), Estimate(2.0, 1.9, np.inf, 24)]
)
@pytest.mark.parametrize("few", [False, True])
def test_what_is_no_number_decides_nothing(name: str, wrong: Estimate, few: bool) -> None:
    """Every comparison with NaN is false, which once read as "not above", "not below" and so as a verdict."""
    for rest in ({}, {"speedup": e(2.0)}, {"margin": e(-0.1)}, {"speedup": e(0.5), "headroom": e(0.9)}):
        got = decide(seen(n=12 if few else 24, **(rest | {name: wrong})), gate=GATE)
        assert (got.verdict, got.gate) == ("undecided", "inconclusive")
        assert got.candidates == ("uncorrelated", "profitable", "verify-bound", "finetune")
        assert f"{name} is no number" in got.reasons[0]
        assert got.culprit == "harness"
    workload = decide(seen(by_workload={"code": wrong}), gate=GATE)
    assert (workload.verdict, workload.gate) == ("undecided", "inconclusive")


def test_on_a_crowded_machine_no_time_decides() -> None:
    """A speedup of 0.74 [0.52, 0.97] was once measured there of a pair whose speedup is 1.01."""
    crowd = finding("measure.crowded-machine", "warning")
    got = decide(seen(), gate=GATE, findings=[crowd])
    assert got.verdict == "undecided"
    assert got.candidates == ("profitable", "verify-bound", "finetune")
    assert got.gate == "inconclusive"
    assert got.reasons[0].startswith("measure.crowded-machine (engine): saw x")
    assert got.next == ("Do z.",)
    assert not any("speedup" in reason or "baseline" in reason for reason in got.reasons)
    asked = decide(seen(speedup=e(2.0)), gate=Gate(min_speedup=1.1), findings=[crowd])
    assert results(asked)["min_speedup"] == "inconclusive"


def test_a_crowd_does_not_hide_a_blind_drafter() -> None:
    got = decide(seen(margin=e(-0.1)), gate=GATE, findings=[finding("measure.crowded-machine", "warning")])
    assert (got.verdict, got.gate) == ("uncorrelated", "fail")


def test_nothing_measured() -> None:
    got = decide(None, gate=GATE)
    assert (got.verdict, got.gate) == (None, None)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"margin": Estimate(-0.1, -0.2, -0.05, 24)}, "uncorrelated"),
        ({"margin": Estimate(0.01, -0.01, 0.03, 24)}, "uncorrelated"),
        ({"margin": Estimate(0.01, 0.0, 0.03, 24), "speedup": e(2.0)}, "uncorrelated"),
        ({"speedup": Estimate(1.1, 1.001, 1.2, 24)}, "profitable"),
        ({"speedup": e(1.5), "headroom": e(0.5)}, "profitable"),
        ({"headroom": Estimate(1.03, 1.0, 1.0999, 24)}, "verify-bound"),
        ({"headroom": Estimate(1.2, 1.10, 1.3, 24)}, "finetune"),
        ({}, "finetune"),
        ({"speedup": Estimate(1.05, 1.0, 1.1, 24)}, "undecided"),
        ({"headroom": e(1.10)}, "undecided"),
        ({"speedup": None, "headroom": None, "break_even": None}, "undecided"),
    ],
)
def test_the_first_row_that_applies(changes: dict[str, Any], verdict: str) -> None:
    got = decide(seen(**changes), gate=GATE)
    assert got.verdict == verdict
    assert verdict == "undecided" or got.candidates == (verdict,)
    json.dumps(asdict(got), allow_nan=False)


@pytest.mark.parametrize(
    ("changes", "candidates"),
    [
        ({"speedup": e(1.0)}, ("profitable", "finetune")),
        ({"speedup": e(1.0), "headroom": e(1.0)}, ("profitable", "verify-bound")),
        ({"speedup": e(1.0), "headroom": e(1.1)}, ("profitable", "verify-bound", "finetune")),
        ({"headroom": e(1.1)}, ("verify-bound", "finetune")),
        ({"speedup": None, "headroom": None}, ("profitable", "verify-bound", "finetune")),
    ],
)
def test_what_stays_possible(changes: dict[str, Any], candidates: tuple[str, ...]) -> None:
    got = decide(seen(**changes), gate=GATE)
    assert got.candidates == candidates
    assert any("still possible: " + ", ".join(candidates) in reason for reason in got.reasons)


@pytest.mark.parametrize(
    ("changes", "candidates"),
    [
        ({"speedup": Estimate(0.9, 0.8, 1.0, 24)}, ("finetune",)),  # 1.0 itself does not pay
        ({"headroom": Estimate(1.0, 0.9, 1.10, 24)}, ("verify-bound", "finetune")),
        ({"n": 8, "margin": Estimate(-0.1, -0.2, 0.0, 8)}, ("uncorrelated",)),
        ({"n": 8, "margin": Estimate(0.1, 0.0, 0.2, 8)}, ("uncorrelated", "finetune")),
    ],
)
def test_a_bound_on_the_threshold(changes: dict[str, Any], candidates: tuple[str, ...]) -> None:
    got = decide(seen(**changes), gate=GATE)
    assert got.candidates == candidates
    assert results(got)["p1_margin"] == ("pass" if "margin" not in changes else
                                         "fail" if len(candidates) == 1 else "inconclusive")  # fmt: skip


def test_few_prompts_are_undecided() -> None:
    got = decide(seen(n=23, speedup=e(2.0, n=23)), gate=GATE)
    assert (got.verdict, got.candidates, got.gate) == ("undecided", ("profitable",), "inconclusive")
    assert got.more_prompts == 1
    assert any("24 needed" in reason for reason in got.reasons)
    assert decide(seen(n=24, speedup=e(2.0)), gate=GATE).verdict == "profitable"


def test_few_prompts_cannot_call_a_drafter_uncorrelated_by_lack_of_evidence() -> None:
    got = decide(seen(n=8, margin=Estimate(0.1, -0.05, 0.25, 8)), gate=GATE)
    assert got.verdict == "undecided"
    assert got.candidates == ("uncorrelated", "finetune")
    assert {c.name: c.result for c in got.gate_checks}["p1_margin"] == "inconclusive"
    dead = decide(seen(n=8, margin=Estimate(-0.05, -0.07, -0.03, 8), accepted=0), gate=GATE)
    assert (dead.verdict, dead.gate) == ("uncorrelated", "fail")
    assert "nothing at all was accepted" in dead.reasons[0]
    assert any("trained for" in step for step in dead.next)


def test_without_a_blind_control_the_report_says_so() -> None:
    words = "not shown to read hidden states"
    assert any(words in reason for reason in decide(seen(blind=False), gate=GATE).reasons)
    assert not any(words in reason for reason in decide(seen(), gate=GATE).reasons)


NO_TIMES: dict[str, Any] = {"speedup": None, "headroom": None, "break_even": None}


@pytest.mark.parametrize(
    ("changes", "candidates"),
    [
        ({}, ("uncorrelated", "finetune")),
        ({"speedup": e(1.0)}, ("uncorrelated", "profitable", "finetune")),
        ({"headroom": e(1.1)}, ("uncorrelated", "verify-bound", "finetune")),
        (NO_TIMES, ("uncorrelated", "profitable", "verify-bound", "finetune")),
        ({"n": 8, "margin": Estimate(0.1, 0.0, 0.2, 8)}, ("uncorrelated", "finetune")),
        ({"speedup": e(1.5)}, ("profitable",)),  # it is faster, whatever it reads
        ({"headroom": e(1.0)}, ("verify-bound",)),  # not even a drafter that reads its target would pay
        ({"speedup": e(1.0), "headroom": e(1.0)}, ("profitable", "verify-bound")),
        ({"margin": e(-0.1)}, ("uncorrelated",)),  # not even above the floor
    ],
)
def test_without_a_blind_control_worth_training_is_not_shown(
    changes: dict[str, Any], candidates: tuple[str, ...]
) -> None:
    got = decide(seen(blind=False, **changes), gate=Gate(accept_verdicts=("profitable", "finetune")))
    assert got.candidates == candidates
    assert "finetune" not in candidates or (got.verdict, got.gate) == ("undecided", "inconclusive")


def test_a_profile_may_accept_that_it_is_not_shown_to_read_its_target() -> None:
    accepting = Gate(accept_verdicts=("profitable", "finetune", "uncorrelated"))
    assert decide(seen(blind=False), gate=accepting).gate == "pass"
    assert decide(seen(blind=False), gate=Gate(accept_verdicts=("undecided",))).gate == "pass"


def test_the_step_that_settles_it_is_the_control() -> None:
    got = decide(seen(blind=False), gate=GATE)
    assert got.more_prompts is None
    assert "--specprobe-blind" in got.next[0]
    assert not any("too close" in step or "more prompts" in step for step in got.next)
    assert not any("is not shown to be above the floor" in reason for reason in got.reasons), "it is above it"
    both = decide(seen(blind=False, speedup=e(0.98, 0.03)), gate=GATE)
    assert "--specprobe-blind" in both.next[0]
    assert f"about {both.more_prompts} more prompts" in both.next[1]
    assert "--specprobe-baseline" in decide(seen(blind=False, **NO_TIMES), gate=GATE).next[1]
    assert not any("--specprobe-blind" in step for step in decide(seen(speedup=e(0.98, 0.03)), gate=GATE).next)


def test_profitable_stands_without_a_control_and_says_why() -> None:
    got = decide(seen(blind=False, speedup=e(1.5)), gate=GATE)
    assert (got.verdict, got.gate) == ("profitable", "pass")
    assert any("pays whatever it reads" in reason for reason in got.reasons)
    assert not any("pays whatever it reads" in reason for reason in decide(seen(speedup=e(1.5)), gate=GATE).reasons)


def test_the_founding_probe_is_verify_bound() -> None:
    base = Estimate(2.365, 2.34, 2.39, 24)
    point = measured_break_even(base, round_s=1.5 / 52, depth=2)
    got = decide(
        seen(accept_length=e(1.5), speedup=e(0.634), headroom=point.headroom_interval, break_even=point), gate=GATE
    )
    assert (got.verdict, got.gate) == ("verify-bound", "fail")
    assert any("2.37 [2.34, 2.39] of at most 3" in reason for reason in got.reasons)
    assert any("1.03" in reason and "below 1.1" in reason for reason in got.reasons)


def test_finetune_says_what_to_reach() -> None:
    (first, second) = decide(seen(), gate=GATE).next
    assert first == "fine-tuning can pay"
    assert "1.90 of at most 3: 57% acceptance at every position" in second


# --- the gate ----------------------------------------------------------------------------------------------------


def results(got: Decision) -> dict[str, str]:
    return {check.name: check.result for check in got.gate_checks}


@pytest.mark.parametrize(
    ("gate", "changes", "result"),
    [
        ({}, {}, "pass"),
        ({}, {"speedup": e(1.5)}, "pass"),
        ({}, {"headroom": e(1.0)}, "fail"),
        ({}, {"headroom": e(1.1)}, "inconclusive"),  # verify-bound is not accepted, finetune is
        ({}, {"speedup": e(1.0)}, "pass"),  # whichever it is, it is accepted
        ({"accept_verdicts": ["profitable"]}, {"speedup": e(1.0)}, "inconclusive"),
        ({"accept_verdicts": ["profitable"]}, {}, "fail"),
        ({}, {"margin": e(0.0)}, "fail"),
        ({}, {"accept_length": Estimate(1.02, 1.0, 1.1, 24)}, "inconclusive"),
        ({}, {"accept_length": Estimate(1.0, 1.0, 1.0, 24)}, "fail"),
        ({"min_accept_length": 1.6}, {}, "fail"),
        ({"min_accept_length": 1.5}, {}, "inconclusive"),
        ({"min_accept_length": 1.4}, {}, "pass"),
        ({"min_speedup": 0.7}, {}, "pass"),
        ({"min_speedup": 0.8}, {}, "inconclusive"),
        ({"min_speedup": 0.9}, {}, "fail"),
        ({"min_tok_per_s": 60}, {}, "pass"),
        ({"min_tok_per_s": 70}, {}, "fail"),
        ({"min_tok_per_s": 60}, {"tok_per_s": None}, "inconclusive"),
        ({"min_accept_length": 1.6, "min_speedup": 0.8}, {}, "fail"),  # the worst condition wins
        ({}, {"speedup": None, "headroom": None, "break_even": None}, "inconclusive"),
        ({"accept_verdicts": ["undecided"]}, {"speedup": None, "headroom": None, "break_even": None}, "pass"),
        (
            {"accept_verdicts": ["profitable", "verify-bound", "finetune"]},
            {"speedup": None, "headroom": None, "break_even": None},
            "pass",
        ),
    ],
)
def test_the_gate(gate: dict[str, Any], changes: dict[str, Any], result: str) -> None:
    assert decide(seen(**changes), gate=Gate(**gate)).gate == result


def test_every_condition_is_named_by_its_profile_key() -> None:
    got = decide(seen(), gate=Gate(min_speedup=0.5, min_tok_per_s=10))
    assert list(results(got)) == [
        "min_accept_length", "p1_margin", "min_speedup", "min_tok_per_s", "min_prompts", "accept_verdicts"
    ]  # fmt: skip
    assert set(results(got).values()) == {"pass"}


@pytest.mark.parametrize(
    ("wanted", "result"), [({"code": 1.8}, "pass"), ({"code": 2.2}, "fail"), ({"code": 2.0}, "inconclusive"),
                           ({"math": 1.1}, "inconclusive"), ({"code": 1.8, "docs": 1.5}, "fail")],
)  # fmt: skip
def test_workloads_have_thresholds_of_their_own(wanted: dict[str, float], result: str) -> None:
    """A workload that was not measured is not a pass."""
    got = decide(
        seen(by_workload={"code": e(2.0, 0.1, n=12), "docs": e(1.2, 0.1, n=12)}),
        gate=Gate(min_accept_length_by_workload=wanted),
    )
    assert got.gate == result
    assert f"min_accept_length_by_workload.{next(iter(wanted))}" in results(got)


@pytest.mark.parametrize(
    ("n", "length", "result"),
    [
        (2, 2.0, "inconclusive"),
        (11, 2.0, "inconclusive"),
        (11, 1.0, "inconclusive"),
        (12, 2.0, "pass"),
        (12, 1.0, "fail"),
    ],
)
def test_few_prompts_of_a_workload_pass_and_fail_nothing(n: int, length: float, result: str) -> None:
    """Two prompts passed a gate of their workload."""
    got = decide(seen(by_workload={"code": e(length, n=n)}), gate=Gate(min_accept_length_by_workload={"code": 1.5}))
    (check,) = [check for check in got.gate_checks if check.name.endswith(".code")]
    assert check.result == got.gate == result
    assert ("[" in check.seen) == (n >= 12)
    assert (f"of {n} prompts, fewer than 12" in check.seen) == (n < 12)


def test_the_gate_names_the_verdict_or_what_it_may_be() -> None:
    told = {c.name: c for c in decide(seen(headroom=e(1.1)), gate=Gate(accept_verdicts=("profitable",))).gate_checks}
    assert told["accept_verdicts"].seen == "undecided: verify-bound or finetune"
    assert told["accept_verdicts"].wanted == "profitable"
    told = {c.name: c for c in decide(seen(), gate=Gate(accept_verdicts=())).gate_checks}
    assert (told["accept_verdicts"].seen, told["accept_verdicts"].wanted) == ("finetune", "none")
    assert told["accept_verdicts"].result == "fail"


def test_a_drafter_that_does_not_read_the_target_fails_even_if_the_profile_accepts_the_verdict() -> None:
    got = decide(seen(margin=e(0.0)), gate=Gate(accept_verdicts=("uncorrelated",)))
    assert results(got)["accept_verdicts"] == "pass"
    assert got.gate == "fail"


# --- how many more -----------------------------------------------------------------------------------------------


def test_more_prompts_are_for_a_chance_of_four_in_five() -> None:
    """Drawn by brute force: a truth about the value, and a new value about the truth."""
    rng = np.random.default_rng(5)
    needed = prompts_needed(e(0.975, 0.03), 1.0)
    assert needed is not None
    error = 0.03 / 1.96
    truth = rng.normal(0.975, error, size=200_000)
    half = 0.03 * np.sqrt(24 / needed)
    again = rng.normal(truth, half / 1.96)
    assert np.mean(np.abs(again - 1.0) > half) == pytest.approx(0.80, abs=0.01)


def test_the_closer_the_more_and_too_close_is_no_number() -> None:
    counts = [prompts_needed(e(value, 0.03), 1.0) for value in (0.94, 0.96, 0.97, 0.98)]
    known = [count for count in counts if count is not None]
    assert len(known) == 4
    assert known == sorted(known)
    assert prompts_needed(e(1.0, 0.03), 1.0) is None
    assert prompts_needed(e(0.999, 0.03), 1.0) is None


def test_an_undecided_verdict_says_how_many_more() -> None:
    got = decide(seen(speedup=e(0.98, 0.03)), gate=GATE)
    assert got.more_prompts is not None
    assert 250 < got.more_prompts < 300
    assert any(f"about {got.more_prompts} more prompts" in step for step in got.next)
    assert decide(seen(), gate=GATE).more_prompts is None
    close = decide(seen(speedup=e(1.0)), gate=GATE)
    assert close.more_prompts is None
    assert any("too close" in step for step in close.next)
    assert any("baseline" in step for step in decide(seen(speedup=None, headroom=None), gate=GATE).next)


def test_each_side_of_an_interval_counts_for_its_own_threshold() -> None:
    lopsided = Estimate(1.0, 0.93, 1.04, 24)
    below, above = prompts_needed(lopsided, 0.95), prompts_needed(lopsided, 1.05)
    assert below is not None
    assert above is not None
    assert below > 3 * above


def test_a_small_margin_says_what_would_show_it() -> None:
    got = decide(seen(margin=Estimate(0.02, -0.01, 0.05, 24)), gate=GATE)
    assert got.verdict == "uncorrelated"
    assert got.more_prompts is not None
    assert 250 < got.more_prompts < 300
    assert any(f"about {got.more_prompts} more prompts" in step for step in got.next)
    assert decide(seen(margin=Estimate(-0.02, -0.05, 0.01, 24)), gate=GATE).more_prompts is None


# --- invariants --------------------------------------------------------------------------------------------------

bounds = st.tuples(st.floats(0.2, 3.0), st.floats(0, 0.5), st.floats(0, 0.5)).map(
    lambda t: Estimate(t[0], t[0] - t[1], t[0] + t[2], 24)
)


@settings(max_examples=300)
@given(bounds, bounds, st.floats(-0.3, 0.3), st.floats(0, 0.2))
def test_narrower_intervals_never_add_a_candidate(
    speedup: Estimate, headroom: Estimate, margin: float, half: float
) -> None:
    def shrunk(x: Estimate) -> Estimate:
        return Estimate(x.value, (x.low + x.value) / 2, (x.high + x.value) / 2, x.n)

    wide = decide(seen(speedup=speedup, headroom=headroom, margin=e(margin, half)), gate=GATE)
    narrow = decide(seen(speedup=shrunk(speedup), headroom=shrunk(headroom), margin=e(margin, half)), gate=GATE)
    assert wide.candidates
    assert set(narrow.candidates) <= set(wide.candidates)
    assert (wide.verdict == "undecided") == (len(wide.candidates) > 1)
    if wide.gate == "pass":
        assert narrow.gate == "pass"
    if wide.gate == "fail":
        assert narrow.gate == "fail"
