"""From intervals to one verdict, and from the verdict to a gate.

Invariant: the first row that applies wins (broken, invalid, uncorrelated, profitable, verify-bound, finetune), a row
applies only if its whole interval says so, and what the intervals still allow is named (``candidates``). Nothing here
reads a bare value: a verdict of this module changes only when an interval bound crosses a threshold.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal

from pytest_specprobe.decide.breakeven import BreakEven
from pytest_specprobe.findings import Finding, failed
from pytest_specprobe.measure.acceptance import Acceptance
from pytest_specprobe.measure.records import Estimate
from pytest_specprobe.measure.throughput import Throughput
from pytest_specprobe.profiles import Gate, Verdict

MIN_PROMPTS = 24
GateResult = Literal["pass", "fail", "inconclusive", "error"]
_MEASUREMENT = "measure."
_POWER = 0.80
_FARTHEST = 100  # times the prompts of this run; asking for more is not advice


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that the decision looks at; None is what was not measured.

    ``margin`` is p1 - max(blind, floor); ``blind`` tells whether a blind control is in it; ``headroom`` is
    L(p_reach) / B; ``speedup`` above 1 is the same as L above B within the throughput pass.
    """

    accept_length: Estimate
    margin: Estimate
    accepted: int
    rounds: int
    blind: bool
    tok_per_s: Estimate | None = None
    speedup: Estimate | None = None
    headroom: Estimate | None = None
    break_even: BreakEven | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCheck:
    """One condition of the gate: what was asked, what was seen, and how it ended."""

    name: str
    result: Literal["pass", "fail", "inconclusive"]
    seen: str
    wanted: str

    def to_json(self) -> dict[str, str]:
        """Return one entry of ``gate_checks``."""
        return {"name": self.name, "result": self.result, "seen": self.seen, "wanted": self.wanted}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The verdict (None: there is none), what else it may be, why, and what to do next.

    ``candidates`` are the verdicts that the intervals allow, in the order of the table; one for a settled verdict.
    ``more_prompts`` is how many more prompts of the same kind would probably settle an undecided one (None: it is
    settled, or closer to a threshold than any sensible number of prompts can tell apart).
    """

    verdict: Verdict | None
    candidates: tuple[Verdict, ...]
    gate: GateResult | None
    gate_checks: tuple[GateCheck, ...]
    reasons: tuple[str, ...]
    next: tuple[str, ...]
    more_prompts: int | None

    def to_json(self) -> dict[str, Any]:
        """Return the decision's fields of a drafter's entry in report.json."""
        return {
            "verdict": self.verdict,
            "candidates": list(self.candidates),
            "gate": self.gate,
            "gate_checks": [check.to_json() for check in self.gate_checks],
            "reasons": list(self.reasons),
            "next": list(self.next),
            "more_prompts": self.more_prompts,
        }


def evidence(
    acceptance: Acceptance, throughput: Throughput | None = None, break_even: BreakEven | None = None
) -> Evidence:
    """Gather what the decision looks at from the passes."""
    return Evidence(
        accept_length=acceptance.accept_length,
        margin=acceptance.margin,
        accepted=acceptance.accepted,
        rounds=acceptance.rounds,
        blind=acceptance.blind is not None,
        tok_per_s=throughput and throughput.tok_per_s,
        speedup=throughput and throughput.speedup,
        headroom=break_even and break_even.headroom_interval,
        break_even=break_even,
    )


def decide(seen: Evidence | None, *, gate: Gate, findings: Iterable[Finding] = ()) -> Decision:
    """Decide, by the first rule that applies.

    :param seen: None if the acceptance pass did not run.
    :param gate: the profile's thresholds.
    :param findings: every check that ran. Failing errors whose id starts with ``measure.`` make the measurement
        invalid; any other failing error makes the drafter ``broken``.
    """
    wrong = failed(findings)
    faults = [f for f in wrong if not f.id.startswith(_MEASUREMENT)]
    if faults:
        return _broken(faults)
    if wrong:
        return _invalid(wrong)
    if seen is None:
        return Decision(
            verdict=None,
            candidates=(),
            gate=None,
            gate_checks=(),
            reasons=("acceptance was not measured",),
            next=(),
            more_prompts=None,
        )
    candidates = possible(seen, min_headroom=gate.min_headroom)
    verdict: Verdict = candidates[0] if len(candidates) == 1 else "undecided"
    if seen.accept_length.n < MIN_PROMPTS and seen.margin.high > 0:
        verdict = "undecided"
    if verdict == "undecided" and seen.margin.low <= 0 and seen.accept_length.n >= MIN_PROMPTS:
        verdict = "uncorrelated"
    checks = tuple(_gate_checks(seen, gate, verdict, candidates))
    more = more_prompts(seen, min_headroom=gate.min_headroom) if verdict in {"undecided", "uncorrelated"} else None
    return Decision(
        verdict=verdict,
        candidates=candidates,
        gate=_worst(checks),
        gate_checks=checks,
        reasons=tuple(_reasons(seen, verdict, candidates, gate)),
        next=tuple(_next(seen, verdict, more)),
        more_prompts=more,
    )


def possible(seen: Evidence, *, min_headroom: float) -> tuple[Verdict, ...]:
    """Return the verdicts that the intervals allow, in the order of the table."""
    raise NotImplementedError


def prompts_needed(estimate: Estimate, threshold: float) -> int | None:
    """Return how many prompts would put the interval on one side of ``threshold``, if the value stays.

    The interval shrinks with the square root of the number of prompts; the count is for a chance of 80 % that it then
    clears the threshold. None if the value is so close that it takes over 100 times the prompts of this run.
    """
    distance = abs(estimate.value - threshold)
    side = estimate.value - estimate.low if estimate.value > threshold else estimate.high - estimate.value
    z = NormalDist().inv_cdf(0.975)
    wanted = side * (1 + NormalDist().inv_cdf(_POWER) / z)
    if wanted > distance * math.sqrt(_FARTHEST):
        return None
    return max(math.ceil(estimate.n * (wanted / distance) ** 2), 1) if distance else None


def more_prompts(seen: Evidence, *, min_headroom: float) -> int | None:
    """Return how many more prompts would probably settle every straddled threshold; None if that cannot be said."""
    raise NotImplementedError


def _broken(faults: Sequence[Finding]) -> Decision:
    raise NotImplementedError


def _invalid(wrong: Sequence[Finding]) -> Decision:
    raise NotImplementedError


def _gate_checks(
    seen: Evidence, gate: Gate, verdict: Verdict, candidates: tuple[Verdict, ...]
) -> Iterable[GateCheck]:
    raise NotImplementedError


def _worst(checks: Iterable[GateCheck]) -> GateResult:
    raise NotImplementedError


def _reasons(seen: Evidence, verdict: Verdict, candidates: tuple[Verdict, ...], gate: Gate) -> Iterable[str]:
    raise NotImplementedError


def _next(seen: Evidence, verdict: Verdict, more: int | None) -> Iterable[str]:
    raise NotImplementedError
