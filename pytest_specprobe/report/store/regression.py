"""Is it slower, or accepted less, than before? Paired by prompt, against one run or the median of several.

Invariant: a change is named only if its whole 95 % interval is beyond the stated minimum; times of a machine that
others used are nobody's reference. Which runs may be compared is the caller's to say.

The interval has two parts. Prompts: one set of resamples for all runs (``measure.statistics``). Runs: two runs of
one key differ by more than their prompts say (boots, clocks, neighbours), so the spread between runs is added:
s^2 = (4 s0^2 + sum of d^2 / 2) / (4 + count of d), d being the log-ratio of a reference run and the one before it.
Such differences keep a slow drift, which must be seen, from widening its own interval (von Neumann 1941); they are
cut at three times the usual, so that one bad run among the references hides no other. s0 stands in where runs are
few. The median of N reference runs varies by s^2 (pi / 2) / N.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

from pytest_specprobe.measure.boot_spread import BOOT_SPREAD
from pytest_specprobe.measure.request import Estimate
from pytest_specprobe.measure.statistics import (
    CONFIDENCE,
    Quantity,
    Resamples,
    resample,
    student_quantile,
)
from pytest_specprobe.report.store.history import Row, Run

Measure = Literal["accept_length", "tok_per_s", "speedup", "baseline_tok_per_s"]
Trend = Literal["regressed", "improved", "steady", "cannot tell"]
MINIMUM = 0.05
LAST = 10
# What two runs of one key usually differ by (standard deviation of the logarithm), counted as four earlier pairs.
_USUAL: dict[Measure, float] = {
    "accept_length": 0.005, "tok_per_s": BOOT_SPREAD, "speedup": 0.03, "baseline_tok_per_s": BOOT_SPREAD,
}  # fmt: skip
_USUAL_PAIRS = 4
# Times of one server alone; a speedup is measured in turns with its baseline, so that a busy machine slows both.
_TIMES: tuple[Measure, ...] = ("tok_per_s", "baseline_tok_per_s")
_ALWAYS: tuple[Measure, ...] = ("accept_length", "tok_per_s")
_MOST_PAIRS = 40
_FARTHEST = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One measure of a run over its reference, a ratio: below 1 is less than before.

    ``references`` counts the runs behind the reference, ``minimum`` is the least change that counts, ``spread`` the
    standard deviation between runs that is in the interval. ``ratio`` is None where the runs share fewer than two
    prompts. ``noisy`` says that others used the machine, so that the ratio of two times says nothing.
    """

    measure: Measure
    ratio: Estimate | None
    references: int
    minimum: float
    spread: float
    noisy: bool = False

    @property
    def trend(self) -> Trend:
        """Return what the interval says."""
        r, least = self.ratio, self.minimum
        if r is None or self.noisy:
            return "cannot tell"
        if r.high < 1 - least:
            return "regressed"
        if r.low > 1 + least:
            return "improved"
        return "steady" if 1 - least < r.low and r.high < 1 + least else "cannot tell"


def compare(run: Run, references: Sequence[Run], *, minimum: float = MINIMUM) -> tuple[Change, ...]:
    """Return how each measure of ``run`` compares with the median of ``references`` (oldest first, at least one).

    Speedups are left out where some run measured no baseline beside the drafter; accept length and tok/s never are.

    :raises ValueError: without a reference, or if the minimum is not between 0 and 1.
    """
    if not references:
        raise ValueError("nothing to compare with")
    if not 0 < minimum < 1:
        raise ValueError("the minimum change is a share between 0 and 1")
    changes = []
    drawn: dict[tuple[str, ...], Resamples] = {}
    for measure in _USUAL:
        fit = [reference for reference in references if _fit(measure, reference)]
        held = fit or references
        ratio, spread = _ratio(measure, run, held, drawn)
        if ratio is not None or measure in _ALWAYS:
            changes.append(
                Change(
                    measure=measure,
                    ratio=ratio,
                    references=len(held),
                    minimum=minimum,
                    spread=spread,
                    noisy=not (fit and _fit(measure, run)),
                )
            )
    return tuple(changes)


def _fit(measure: Measure, run: Run) -> bool:
    """Tell whether the machine was quiet enough for this measure."""
    if measure in _TIMES:
        return run.quiet
    return not (measure == "speedup" and run.crowded)


def judged(changes: Sequence[Change]) -> tuple[Change, ...]:
    """Return the changes that decide: accept length and tok/s; speedup stands in for tok/s on a busy machine.

    On a crowded one it says no more than tok/s does.

    Drafter and baseline take turns, so that a busy machine slows both; but a speedup holds the luck of two boots, is
    less sharp, and so comes second.
    """
    found = {change.measure: change for change in changes}
    speed = found["tok_per_s"]
    return found["accept_length"], found.get("speedup", speed) if speed.noisy else speed


def trend(changes: Sequence[Change]) -> Trend:
    """Return the worst of what is judged."""
    found = {change.trend for change in judged(changes)}
    order: tuple[Trend, ...] = ("regressed", "cannot tell", "improved", "steady")
    return next(one for one in order if one in found)


def _ratio(
    measure: Measure, run: Run, references: Sequence[Run], drawn: dict[tuple[str, ...], Resamples]
) -> tuple[Estimate | None, float]:
    """Return the ratio and the spread between runs; ``drawn`` keeps the resamples of each set of prompts."""
    usual = _USUAL[measure]
    tables = [{row.id: row for row in r.rows if _pair(measure, row) is not None} for r in (run, *references)]
    ids = tuple(i for i in tables[0] if all(i in table for table in tables))
    if len(ids) < 2:
        return None, usual
    if ids not in drawn:
        drawn[ids] = resample([tables[0][i].workload for i in ids])
    resamples = drawn[ids]
    now, *past = (_value(measure, resamples, [table[i] for i in ids]) for table in tables)
    draws = np.log(now.draws) - np.median(np.log(np.stack([q.draws for q in past])), axis=0)
    logs = [math.log(q.value) for q in past]
    value = math.log(now.value) - float(np.median(logs))
    spread, freedom = _spread(logs, usual)
    of_median = 1.0 if len(past) < 3 else math.pi / 2
    z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    runs = student_quantile(z, freedom) * spread * math.sqrt(1 + of_median / len(past))
    low, high = (float(q) for q in np.quantile(draws, [now.tail, 1 - now.tail]))
    below = math.hypot(max(value - low, 0.0), runs)
    above = math.hypot(max(high - value, 0.0), runs)
    return Estimate(math.exp(value), math.exp(value - below), math.exp(value + above), len(ids)), spread


def _spread(logs: Sequence[float], usual: float) -> tuple[float, int]:
    """Return the standard deviation between runs, and the degrees of freedom behind it."""
    steps = np.abs(np.diff(np.array(logs[-_MOST_PAIRS:])))
    count = _USUAL_PAIRS + len(steps)
    if len(steps) > 2:
        # one slow run among the references makes two large steps; it must not hide the next slow run
        robust = float(np.median(steps)) / (NormalDist().inv_cdf(0.75) * math.sqrt(2))
        steps = np.minimum(steps, _FARTHEST * math.sqrt(2) * max(robust, usual))
    return math.sqrt((_USUAL_PAIRS * usual**2 + float((steps**2).sum()) / 2) / count), count


def _value(measure: Measure, resamples: Resamples, rows: Sequence[Row]) -> Quantity:
    """Return the measure as logarithms can take it: positive at the data and at every resample."""
    columns = np.array([_pair(measure, row) for row in rows], dtype=np.float64)
    if measure == "speedup":
        own = resamples.ratio(columns[:, 0], columns[:, 1])
        base = resamples.ratio(columns[:, 2], columns[:, 3])
        return Quantity(own.value / base.value, own.draws / base.draws, own.n, own.tail)
    return resamples.ratio(columns[:, 0], columns[:, 1])


def _pair(measure: Measure, row: Row) -> tuple[float, ...] | None:
    """Return numerator and denominator of one prompt (both twice for a speedup); None where it was not measured."""
    own = (row.tokens, row.decode_s)
    base = (row.baseline_tokens, row.baseline_decode_s)
    found: tuple[float | None, ...]
    match measure:
        case "accept_length":
            if row.rounds is None or row.accepted is None:
                return None
            found = (row.rounds + row.accepted, row.rounds)
        case "tok_per_s":
            found = own
        case "baseline_tok_per_s":
            found = base
        case "speedup":
            found = (*own, *base)
    numbers = tuple(float(number) for number in found if number is not None and number > 0)
    return numbers if len(numbers) == len(found) else None
