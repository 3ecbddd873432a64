"""Numbers and words as every rendering of a report shows them."""

import re
from collections.abc import Iterator
from typing import Protocol

from pytest_specprobe.measure.request import MIN_STRATUM
from pytest_specprobe.report.model.break_even import BreakEven
from pytest_specprobe.report.model.checks import Finding
from pytest_specprobe.report.model.history import Change, History
from pytest_specprobe.report.model.report import DrafterReport, Report

NO_BREAK = "\N{NO-BREAK SPACE}"
_INTERVAL = re.compile(r"(?:(?<![\w.-])[\w.-]{1,80}+: )?(?<![\d.,])[\d.,]{1,20} \[[\d.,-]{1,20}, [\d.,-]{1,20}\]")

VERDICT_SAYS = {
    "broken": "a check failed: nothing measured says anything about the drafter",
    "uncorrelated": "it does not read this target: do not fine-tune it",
    "profitable": "it pays as it is",
    "verify-bound": "the verify step is the wall, not the drafter",
    "finetune": "it does not pay yet, and training can make it pay",
    "undecided": "the intervals allow more than one verdict",
    None: "nothing was decided",
}
# How a verdict looks at a glance; the gate has its own colour beside it.
TONES = {
    "profitable": "good",
    "finetune": "open",
    "undecided": "open",
    "verify-bound": "bad",
    "uncorrelated": "bad",
    "broken": "bad",
    None: "open",
    "pass": "good",
    "inconclusive": "open",
    "fail": "bad",
    "error": "bad",
}
GATE_SAYS = {
    "pass": "passed",
    "fail": "failed",
    "inconclusive": "inconclusive",
    "error": "not decided: nothing could be measured",
    None: "not asked",
}

MEASURES = {
    "accept_length": "accept length",
    "tok_per_s": "tok/s",
    "speedup": "speedup",
    "baseline_tok_per_s": "baseline tok/s",
}


class Interval(Protocol):
    """An estimate, of the report or of a measurement: a value, its 95 % interval and the prompts behind it."""

    @property
    def value(self) -> float:
        """The estimate itself."""

    @property
    def low(self) -> float:
        """The lower bound."""

    @property
    def high(self) -> float:
        """The upper bound."""

    @property
    def n(self) -> int:
        """Prompts behind it; 0 for a declared number."""


def number(value: float | None) -> str:
    """Return about three significant digits; ``undefined`` for None."""
    if value is None:
        return "undefined"
    size = abs(value)
    return f"{value:,.0f}" if size >= 1000 else f"{value:.1f}" if size >= 100 else f"{value:.2f}"


def interval(estimate: Interval | None) -> str:
    """Return ``value [low, high]``; ``undefined`` for None. A declared number (no prompts) has no interval."""
    if estimate is None:
        return "undefined"
    if estimate.n == 0:
        return number(estimate.value)
    return f"{number(estimate.value)} [{number(estimate.low)}, {number(estimate.high)}]"


def of_stratum(estimate: Interval | None) -> str:
    """Return an estimate over part of the prompts; too few of them have no interval that is worth showing."""
    if estimate is None or estimate.n >= MIN_STRATUM:
        return interval(estimate)
    return f"{number(estimate.value)} (of {estimate.n} prompt{'s' * (estimate.n > 1)})"


def percent(estimate: Interval) -> str:
    """Return a share's ``value [low, high]`` in percent, one decimal."""
    value, low, high = (f"{100 * share:.1f}" for share in (estimate.value, estimate.low, estimate.high))
    return f"{value} [{low}, {high}] %"


def kept_together(text: str) -> str:
    """Return the text with no line break inside an interval, or between it and its value or label."""
    return _INTERVAL.sub(lambda found: found[0].replace(" ", NO_BREAK), text)


def share(value: float | None) -> str:
    """Return a share as whole percent."""
    return "undefined" if value is None else f"{value:.0%}"


def seconds(value: float) -> str:
    """Return a duration in the unit that a reader would choose."""
    if value < 120:
        return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
    if value < 7200:
        return f"{value / 60:.0f} min"
    return f"{value / 3600:.0f} h" if value < 172_800 else f"{value / 86_400:.0f} days"


def unexplained(entry: DrafterReport) -> list[Finding]:
    """Return the failed errors and warnings that the entry's reasons do not already tell, errors first."""
    told = " ".join(entry.reasons)
    wrong = [f for f in entry.checks if f.status == "fail" and f.severity != "info" and f.id not in told]
    return sorted(wrong, key=lambda f: f.severity != "error")


def paid_by(point: BreakEven | None) -> str | None:
    """Return in words what it takes to pay, from the break-even point; None without one."""
    if point is None:
        return None
    required = point.required_acceptance
    if required is None:
        return f"out of reach at this depth: even all {point.max_accept_length - 1} drafts accepted would not pay"
    return f"{share(required)} acceptance at every position" if required else "any acceptance at all"


def past(history: History) -> str:
    """Return in one sentence how a run compares with its own past."""
    kept = "kept in the history" if history.kept else "not kept: its gate does not pass"
    if history.problem:
        return f"{kept if history.kept else 'history not kept'}: {history.problem}"
    if not history.changes:
        return f"no earlier run of the same key to compare with; {kept}"
    changes = "; ".join(_change(c) for c in history.changes)
    count = len(history.runs)
    return f"over the median of {count} earlier run{'s' * (count > 1)} of the same key: {changes}; {kept}"


def _change(change: Change) -> str:
    why = ", since other processes used the machine" if change.noisy else ""
    return f"{MEASURES[change.measure]} {interval(change.ratio)} {change.trend}{why}"


def rankings(report: Report) -> Iterator[tuple[str, str]]:
    """Yield, for drafters that share a target, what is ranked and in one sentence who leads and how surely."""
    for both in report.comparisons:
        for found in (both.accept_length, both.speed):
            if found is None:
                continue
            order = " > ".join(f"{name} {number(found.estimates[name].value)}" for name in found.order)
            sure = f"{found.winner} surely leads" if found.winner else "the lead is within the intervals"
            yield (
                MEASURES[found.measure],
                f"on {both.target}: {order} ({sure}, {found.prompts} shared prompts)",
            )


def brief(value: object) -> str:
    """Return one side of a difference: short, and a word for what is not set."""
    text = "unset" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:12]}..."
