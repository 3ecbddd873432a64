"""From intervals to one verdict, and from the verdict to a gate.

Invariant: the first row that applies wins (broken, invalid, uncorrelated, profitable, verify-bound, finetune), a row
applies only if its whole interval says so, and what the intervals still allow is named (``candidates``). A verdict
changes only when an interval's bound crosses a threshold.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pytest_specprobe.decide.evidence import Evidence, evidence
from pytest_specprobe.decide.explain import next_steps, reasons
from pytest_specprobe.decide.gate import GateCheck, GateResult, gate_checks, missed, worst
from pytest_specprobe.decide.prompts_needed import more_prompts, straddles
from pytest_specprobe.errors import Culprit, ProbeImpossible
from pytest_specprobe.findings import MEASUREMENT, Finding, failed
from pytest_specprobe.measure.checks.busy_machine import CROWDED_MACHINE
from pytest_specprobe.measure.request import Estimate
from pytest_specprobe.profiles import Gate, Verdict

__all__ = ["Decision", "Evidence", "decide", "evidence", "possible", "with_past"]
_ALL: tuple[Verdict, ...] = ("uncorrelated", "profitable", "verify-bound", "finetune")
_NARROWED = "narrowed run: acceptance was not asked for, so there is no verdict"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The verdict (None: there is none), what else it may be, why, and what to do next.

    ``candidates`` are the verdicts that the intervals allow, in the order of the table. ``more_prompts`` is how many
    more prompts of the same kind would probably settle what is open (None: nothing is, or it is closer to a threshold
    than any sensible number of prompts can tell). ``culprit`` is who is at fault for what does not pass. Without
    ``gate_checks`` nothing was held against the gate: broken, invalid, or not measured.
    """

    verdict: Verdict | None
    candidates: tuple[Verdict, ...] = ()
    gate: GateResult | None
    gate_checks: tuple[GateCheck, ...] = ()
    reasons: tuple[str, ...]
    next: tuple[str, ...] = ()
    more_prompts: int | None = None
    culprit: Culprit = "drafter-file"


def decide(
    seen: Evidence | None,
    *,
    gate: Gate,
    findings: Iterable[Finding] = (),
    impossible: Sequence[ProbeImpossible] = (),
    narrowed: bool = False,
) -> Decision:
    """Decide, by the first rule that applies; the past is added by :func:`with_past`, which hangs on this decision.

    :param seen: None if the acceptance pass did not run.
    :param gate: the profile's thresholds.
    :param findings: every check that ran. A failing error whose id starts with ``measure.`` makes the measurement
        invalid (no verdict, gate ``error``); any other failing error makes the drafter ``broken``. On a crowded
        machine (``measure.crowded-machine``) nothing timed counts.
    :param impossible: the errors of what could not be probed: without a verdict the gate is then ``error``.
    :param narrowed: the run was asked for less than a verdict: without one, nothing is held against the gate.
    """
    decision = _decide(seen, gate, tuple(findings))
    if decision.verdict is not None:
        return decision
    if impossible:
        return replace(
            decision,
            gate="error",
            reasons=tuple(error.what.partition("\n")[0] for error in impossible),
            next=tuple(error.fix for error in impossible),
            culprit=impossible[0].culprit,
        )
    return replace(decision, gate=None, reasons=(_NARROWED,)) if narrowed else decision


def with_past(decision: Decision, check: GateCheck) -> Decision:
    """Return the decision with one more condition, the comparison with earlier runs.

    The decision comes first: a run without a gate, or of which nothing was held against it, is compared with nothing.
    """
    if not decision.gate_checks:
        return decision
    checks = (*decision.gate_checks, check)
    return replace(
        decision,
        gate=worst(one.result for one in checks),
        gate_checks=checks,
        reasons=(*decision.reasons, *missed([check])),
    )


def _decide(seen: Evidence | None, gate: Gate, findings: tuple[Finding, ...]) -> Decision:
    wrong = failed(findings)
    faults = [f for f in wrong if not f.id.startswith(MEASUREMENT)]
    if faults:
        return Decision(
            verdict="broken",
            candidates=("broken",),
            gate="fail",
            reasons=_why(faults),
            next=_fix(faults),
            culprit=faults[0].culprit,
        )
    if wrong:
        invalid = ("the measurement is invalid, so there is no verdict", *_why(wrong))
        return Decision(verdict=None, gate="error", reasons=invalid, next=_fix(wrong), culprit=wrong[0].culprit)
    if seen is None:
        return Decision(verdict=None, gate=None, reasons=("acceptance was not measured",), culprit="harness")
    if seen.undefined:
        return Decision(
            verdict="undecided",
            candidates=_ALL,
            gate="inconclusive",
            reasons=(f"{', '.join(seen.undefined)} is no number, so that nothing follows from it",),
            next=("report this with the report folder: an estimate of a valid measurement is a number",),
            culprit="harness",
        )
    crowded = tuple(f for f in failed(findings, severity="warning") if f.id == CROWDED_MACHINE)
    if crowded:
        seen = seen.without_times()
    candidates = possible(seen, min_headroom=gate.min_headroom)
    settled = len(candidates) == 1 and (candidates == ("uncorrelated",) or not seen.few_prompts)
    verdict: Verdict = candidates[0] if settled else "undecided"
    checks = tuple(gate_checks(seen, gate, verdict, candidates))
    short = missed(checks)
    more = more_prompts(seen, _open(seen, verdict, gate.min_headroom))
    return Decision(
        verdict=verdict,
        candidates=candidates,
        gate=worst(check.result for check in checks),
        gate_checks=checks,
        reasons=(
            *_why(crowded[:1]),
            *reasons(seen, gate, verdict, candidates),
            *short,
        ),
        next=(*_fix(crowded), *next_steps(seen, verdict, candidates, more, short=bool(short))),
        more_prompts=more,
    )


def possible(seen: Evidence, *, min_headroom: float) -> tuple[Verdict, ...]:
    """Return the verdicts that the intervals allow, in the order of the table.

    With enough prompts a margin that is not shown to be above zero *is* ``uncorrelated`` (a blind drafter's margin
    straddles zero for ever), unless the accept length is shown to be above the control's. With fewer, only what is
    wholly at or below zero is.

    Above the floor without a blind control may still be a drafter that ignores its target, whose own tokens say much
    about the next: training it is not shown to be worth it. Whether it pays as it is hangs on no control.
    """
    if seen.surely_blind or not (seen.reads_target or seen.few_prompts):
        return ("uncorrelated",)
    allowed: list[Verdict] = [] if seen.reads_target else ["uncorrelated"]
    if seen.may_pay:
        allowed.append("profitable")
    if seen.may_not_pay:
        if seen.headroom is None or seen.headroom.low < min_headroom:
            allowed.append("verify-bound")
        if seen.headroom is None or seen.headroom.high >= min_headroom:
            allowed.append("finetune")
    if not seen.blind and "finetune" in allowed and "uncorrelated" not in allowed:
        allowed.insert(0, "uncorrelated")
    return tuple(allowed)


def _open(seen: Evidence, verdict: Verdict, min_headroom: float) -> list[tuple[Estimate, float]]:
    """Return the thresholds that the intervals straddle and that the verdict hangs on."""
    pairs: list[tuple[Estimate | None, float]] = []
    if verdict in {"undecided", "uncorrelated"} and seen.margin.value > 0 and not seen.reads_target:
        pairs.append((seen.margin, 0.0))
    if verdict == "undecided":
        pairs += [(seen.speedup, 1.0), (seen.end_to_end if seen.may_pay else None, 1.0)]
        if any(speedup is not None and speedup.value < 1 for speedup in (seen.speedup, seen.end_to_end)):
            pairs.append((seen.headroom, min_headroom))
    return [(estimate, at) for estimate, at in pairs if estimate is not None and straddles(estimate, at)]


def _why(findings: Sequence[Finding]) -> tuple[str, ...]:
    return tuple(f"{f.id} ({f.culprit}): saw {f.seen}; expected {f.expected}. {f.why}" for f in findings)


def _fix(findings: Sequence[Finding]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f.fix for f in findings))
