"""The exit code of a run with a named drafter."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pytest_specprobe.report.model.report import DrafterReport

PASSED, FAILED, INCONCLUSIVE, IMPOSSIBLE = 0, 1, 10, 11
_PYTESTS_OWN = (4, 3, 2)
Failure = Literal["failed", "inconclusive", "impossible"]


@dataclass(slots=True)
class Outcome:
    """What the tests of a session said: kinds of failure, and the drafters whose acceptance was to be measured."""

    failures: set[Failure] = field(default_factory=set)
    wanted: set[str] = field(default_factory=set)


def exit_code(exitstatus: int, outcome: Outcome, entries: Mapping[str, DrafterReport], *, static: bool) -> int:
    """Return the exit code; the first rule that applies.

    pytest's own 4 (usage), 3 (internal error) and 2 (interrupted); 11 if something could not be probed; 1 if a
    check or a gate failed; 10 if a gate is inconclusive; 0 if all passed. The gate of every entry counts, also where
    the run was asked for less than a verdict: the code never says better than the report. A drafter whose acceptance
    test was selected and that has no verdict is never green, whatever the tests said.
    """
    if exitstatus in _PYTESTS_OWN:
        return exitstatus
    gates = {entry.gate for entry in entries.values()}
    undecided = outcome.wanted - {name for name, entry in entries.items() if entry.verdict is not None}
    if "impossible" in outcome.failures:
        return IMPOSSIBLE
    if "failed" in outcome.failures or "fail" in gates:
        return FAILED
    if "error" in gates or (undecided and not static):
        return IMPOSSIBLE
    if "inconclusive" in outcome.failures or "inconclusive" in gates:
        return INCONCLUSIVE
    return exitstatus
