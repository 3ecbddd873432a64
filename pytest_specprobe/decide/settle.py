"""How many more prompts would settle what an interval leaves open."""

import math
from collections.abc import Sequence
from statistics import NormalDist

from pytest_specprobe.decide.evidence import MIN_PROMPTS, Evidence
from pytest_specprobe.measure.records import Estimate

_POWER = 0.80
_FARTHEST = 100  # times the prompts of this run: asking for more is no advice


def straddles(estimate: Estimate | None, threshold: float) -> bool:
    """Tell whether the interval lies on both sides of a threshold, or touches it."""
    return estimate is not None and estimate.low <= threshold <= estimate.high


def prompts_needed(estimate: Estimate, threshold: float) -> int | None:
    """Return how many prompts would put the whole interval on one side of ``threshold``, if the value stays.

    The interval shrinks with the square root of the number of prompts; the count is for a chance of 80 % that it then
    clears the threshold. None if the value is so close that it takes over 100 times the prompts of this run.
    """
    distance = abs(estimate.value - threshold)
    side = estimate.value - estimate.low if estimate.value > threshold else estimate.high - estimate.value
    wanted = side * (1 + NormalDist().inv_cdf(_POWER) / NormalDist().inv_cdf(0.975))
    if distance == 0 or wanted > distance * math.sqrt(_FARTHEST):
        return None
    return max(math.ceil(estimate.n * (wanted / distance) ** 2), 1)


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
