"""How many more prompts would settle what an interval leaves open."""

import math
from collections.abc import Sequence
from statistics import NormalDist

from pytest_specprobe.decide.evidence import MIN_PROMPTS, Evidence
from pytest_specprobe.measure.request import Estimate

_POWER = 0.80
_FARTHEST = 20  # times the prompts of this run: asking for more is no advice
_Z = NormalDist().inv_cdf(0.975)


def straddles(estimate: Estimate | None, threshold: float) -> bool:
    """Tell whether the interval lies on both sides of a threshold, or touches it."""
    return estimate is not None and estimate.low <= threshold <= estimate.high


def prompts_needed(estimate: Estimate, threshold: float) -> int | None:
    """Return how many prompts would put the whole interval on one side of ``threshold``, with a chance of 80 %.

    The truth is taken to lie about the value as widely as the interval says, and not at the value itself: a pilot
    that is far from the threshold by luck would ask for too few (of whole simulated probes, a quarter to two thirds
    were settled where 80 % were promised). None if it takes over 20 times the prompts of this run.
    """
    side = estimate.value - estimate.low if estimate.value > threshold else estimate.high - estimate.value
    if side <= 0:
        return estimate.n
    distance = abs(estimate.value - threshold) / (side / _Z)
    if _settles(distance, 1 / math.sqrt(_FARTHEST)) < _POWER:
        return None
    low, high = 1 / math.sqrt(_FARTHEST), 10.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _settles(distance, middle) >= _POWER else (low, middle)
    return max(math.ceil(estimate.n / low**2), 1)


def _settles(distance: float, shrink: float) -> float:
    """Return the chance that a run whose standard error is ``shrink`` times this one's clears the threshold.

    ``distance`` is the value's from the threshold, in standard errors of this run. The new value scatters about a
    truth that itself scatters about the old value.
    """
    spread, normal = math.sqrt(1 + shrink**2), NormalDist()
    same = normal.cdf((distance - _Z * shrink) / spread)
    return same + normal.cdf((-distance - _Z * shrink) / spread)


def more_prompts(seen: Evidence, straddled: Sequence[tuple[Estimate, float]]) -> int | None:
    """Return how many prompts beyond this run's would probably settle every straddled threshold.

    None if nothing is open, or if some threshold is too close for any sensible number.
    """
    needed = [prompts_needed(estimate, threshold) for estimate, threshold in straddled]
    if seen.few_prompts:
        needed.append(MIN_PROMPTS)
    counts = [count for count in needed if count is not None]
    if not counts or len(counts) < len(needed):
        return None
    more = max(counts) - seen.accept_length.n
    return more if more > 0 else None
