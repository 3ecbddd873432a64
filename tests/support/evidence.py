"""Evidence of a probe, and findings, for decisions."""

from typing import Any

from pytest_specprobe.decide.breakeven import measured_break_even
from pytest_specprobe.decide.verdict import Evidence
from pytest_specprobe.findings import Finding, Severity
from pytest_specprobe.measure.request import Estimate


def e(value: float, half: float = 0.01, *, n: int = 24) -> Estimate:
    return Estimate(value, value - half, value + half, n)


def seen(*, n: int = 24, **changes: Any) -> Evidence:
    """A drafter that is correlated and does not pay, with room: ``finetune``."""
    base = e(1.9, 0.05, n=n)
    point = measured_break_even(base, round_s=0.023, depth=2)
    facts: dict[str, Any] = {
        "accept_length": e(1.5, 0.05, n=n),
        "margin": e(0.2, 0.05, n=n),
        "accepted": 500,
        "rounds": 1000,
        "blind": True,
        "tok_per_s": e(65, 1, n=n),
        "speedup": e(0.8, 0.03, n=n),
        "headroom": point.headroom_interval,
        "break_even": point,
    }
    return Evidence(**(facts | changes))


def finding(slug: str, severity: Severity = "error") -> Finding:
    return Finding(
        id=slug,
        severity=severity,
        status="fail",
        culprit="engine",
        seen="x",
        expected="y",
        why="Because.",
        fix="Do z.",
    )
