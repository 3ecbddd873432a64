"""Two servers that were never up together: how much one boot differs from the next.

Invariant: boots differ in speed (memory layout, clocks, what else runs), and an interval over prompts cannot see it.
The drafter's server is measured in its first and its second boot, so that this much of it is seen.
"""

from collections.abc import Sequence

from pytest_specprobe.findings import Finding
from pytest_specprobe.measure.request import Generation
from pytest_specprobe.measure.throughput import decode_rate

MOST = 1.05
"""Largest ratio of the two boots' tok/s, either way."""


def check_apart(drafter: Sequence[Generation]) -> Finding:
    """Check that the drafter's server was as fast in its second boot as in its first.

    :param drafter: its requests in the order they ran: every prompt in the first boot, then again in the second.
    """
    half = len(drafter) // 2
    first, second = decode_rate(drafter[:half]), decode_rate(drafter[half:])
    ratio = max(first, second) / min(first, second)
    return Finding(
        id="measure.boots-differ",
        severity="warning",
        status="pass" if ratio <= MOST else "fail",
        culprit="machine",
        seen=f"the drafter's server decoded {first:.4g} tok/s in one boot and {second:.4g} in the next",
        expected=f"within a factor of {MOST:g}",
        why="The two servers were never up together, and the speedup's interval does not hold what boots differ by.",
        fix="measure again; or make both fit (a smaller --mem-fraction-static), to take turns prompt by prompt",
    )
