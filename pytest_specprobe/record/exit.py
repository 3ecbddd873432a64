"""The exit code of a run with a named drafter."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

PASSED, FAILED, INCONCLUSIVE, IMPOSSIBLE = 0, 1, 10, 11
_PYTESTS_OWN = (4, 3, 2)
Failure = Literal["failed", "inconclusive", "impossible"]


@dataclass(slots=True)
class Outcome:
    """What the tests of a session said: kinds of failure, and the drafters whose acceptance was to be measured."""

    failures: set[Failure] = field(default_factory=set)
    wanted: set[str] = field(default_factory=set)


def exit_code(exitstatus: int, outcome: Outcome, entries: Mapping[str, Mapping[str, Any]], *, static: bool) -> int:
    """Return the exit code; the first rule that applies.

    pytest's own 4 (usage), 3 (internal error) and 2 (interrupted); 11 if something could not be probed; 1 if a
    check or the gate failed; 10 if the gate is inconclusive; 0 if it passed. A drafter whose acceptance test was
    selected and that has no verdict is never green, whatever the tests said. pytest's 5 (nothing collected) stays.
    """
    if exitstatus in _PYTESTS_OWN:
        return exitstatus
    gates = {name: entries[name]["gate"] for name in outcome.wanted if name in entries}
    undecided = [name for name in outcome.wanted if entries.get(name, {}).get("verdict") is None]
    if "impossible" in outcome.failures:
        return IMPOSSIBLE
    if "failed" in outcome.failures or "fail" in gates.values():
        return FAILED
    if "error" in gates.values() or (undecided and not static):
        return IMPOSSIBLE
    if "inconclusive" in outcome.failures or "inconclusive" in gates.values():
        return INCONCLUSIVE
    return exitstatus
