"""The end of a run: hold each drafter against its own past, then keep it if its gate passed.

Invariant: a run is compared and stored here; ``decide`` says what that means for the gate. Where the gate asks for
the past (``max_regression``) it passes only if there was nothing to lose against or the comparison says so; a past
that cannot be read, a run of which it is not known what it compares with, and a past from which nothing but the
drafter's files, the engine or its flags moved on and that was not asked for, are inconclusive and never a pass.

A run is held against the median of the last runs and against that of the first: a slow drift takes the last with
it. A run that is inconclusive for this comparison alone is kept, since few runs cannot tell what ten can.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from filelock import Timeout

from pytest_specprobe.decide.gate import GateCheck, Result, worst
from pytest_specprobe.decide.verdict import Decision, with_past
from pytest_specprobe.reading import Unreadable
from pytest_specprobe.report.build import as_model
from pytest_specprobe.report.model.history import History
from pytest_specprobe.report.model.report import DrafterReport, Report
from pytest_specprobe.report.store import history
from pytest_specprobe.report.store.history import Run, run_of
from pytest_specprobe.report.store.regression import LAST, MINIMUM, Change, compare, judged, trend
from pytest_specprobe.settings import ACROSS, Across

logger = logging.getLogger(__name__)
CHECK = "max_regression"
COMMITS = ("GITHUB_SHA", "CI_COMMIT_SHA")
_RENDERED = "rendered"
_NO_KEY = "not known what this run may be compared with: its engine, flags or files were not read"


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A run beside the earlier runs of its key, oldest first.

    ``run`` is None where nothing was measured or the key is not known. ``runs`` are the last ones and ``changes``
    what this run is to them, empty for the first run of a key, and for an invalid measurement; ``drift`` is what it
    is to the first ones, empty where these are the last ones. ``problem`` says why the past could not be asked.
    ``changed`` names what is not as in the last run of the same drafter and target, for the first run of a key.
    ``across`` are the parts in which the compared runs differ from this one, as asked; ``moved`` those in which runs
    differ that could be compared with, if asked, and were not.
    """

    run: Run | None
    runs: tuple[Run, ...] = ()
    changes: tuple[Change, ...] = ()
    drift: tuple[Change, ...] = ()
    problem: str | None = None
    changed: tuple[str, ...] = ()
    across: tuple[Across, ...] = ()
    moved: tuple[Across, ...] = ()

    @property
    def compared(self) -> bool:
        """Whether this run was held against all of its past, on a machine that was its own.

        A quiet run after none but busy ones counts: it is the reference that they are not.
        """
        if self.run is None or self.problem is not None or self.moved:
            return False
        judges = judged(self.changes) if self.changes else ()
        return all(c.ratio is not None and (self.run.quiet or not c.noisy) for c in judges)

    def check(self, *, limit: float) -> GateCheck:
        """Return the gate's condition: no judged measure is less than before by more than ``limit``."""
        result: Result = "pass"
        seen = "no earlier run of the same key"
        if self.problem is not None:
            result, seen = "inconclusive", self.problem
        elif self.changes:
            results = list(self._results())
            result = worst(one for one, _ in results)
            seen = "; ".join(said for one, said in results if one == result)
        elif self.moved:
            result, parts = "inconclusive", ",".join(self.moved)
            seen += f", and runs that differ in {parts} alone: to compare with them, --specprobe-across={parts}"
        elif self.changed:
            # a template that renders otherwise every day would make every run the first one
            result = "inconclusive" if self.changed == (_RENDERED,) else "pass"
            seen += f"; the last run of this drafter differs in {', '.join(self.changed)}"
        against = "against earlier runs of the same key" if self.changes else "earlier runs"
        against += f" but for {', '.join(self.across)}" if self.changes and self.across else ""
        return GateCheck(
            name=CHECK,
            result=result,
            seen=seen,
            wanted=f"at least {1 - limit:g} of before",
            reason=f"{against}: {seen}",
        )

    def _results(self) -> Iterator[tuple[Result, str]]:
        for which, changes in (("last", self.changes), ("first", self.drift)):
            for change in judged(changes) if changes else ():
                yield _result(change), _said(change, which)


def look_back(
    report: Report, entry: DrafterReport, *, folder: Path, limit: float, across: Sequence[Across] = ()
) -> Past:
    """Hold one drafter's entry against ``folder``'s history; ``limit`` (0: none) is the least change that counts.

    :param across: parts of the key that may differ where no run has the same one.
    """
    run = run_of(report, entry)
    if run is None:
        return Past(run=None, problem=_NO_KEY if entry.acceptance is not None else None)
    try:
        found = history.read(folder)
    except Unreadable as error:
        return Past(run=run, problem=str(error))
    runs = found.comparable(run)
    if found.skipped and not runs:
        # any of these lines may be the past that was asked for
        more = f" and {len(found.skipped) - 1} more lines" if len(found.skipped) > 1 else ""
        return Past(run=run, problem=f"not readable, and no other line is of this key: {found.skipped[0]}{more}")
    if runs or run.gate == "error":
        return hold(run, runs, limit=limit)
    asked = [other for other in _same_pair(run, found.runs) if _parts(run, other) <= {*across}]
    if asked:
        differing = {part for other in asked for part in _parts(run, other)}
        return replace(hold(run, asked, limit=limit), across=_in_order(differing))
    moved = [_parts(run, other) for other in _same_pair(run, found.runs)]
    unasked = [
        parts & {*ACROSS} for parts in moved if parts <= {*ACROSS, _RENDERED} and parts & {*ACROSS} - {*across}
    ]
    return Past(run=run, changed=_changed(run, found.runs, across), moved=_in_order(unasked[-1]) if unasked else ())


def hold(run: Run, runs: Sequence[Run], *, limit: float) -> Past:
    """Hold a run against all earlier ones of its key, oldest first; ``limit`` as for :func:`look_back`."""
    last, first = runs[-LAST:], _first(runs)
    if not last or run.gate == "error":
        return Past(run=run, runs=tuple(last))
    least = limit or MINIMUM
    return Past(
        run=run,
        runs=tuple(last),
        changes=compare(run, last, minimum=least),
        drift=compare(run, first, minimum=least) if first else (),
    )


def _same_pair(run: Run, runs: Sequence[Run]) -> list[Run]:
    return [other for other in runs if (other.drafter, other.target) == (run.drafter, run.target)]


def _parts(run: Run, other: Run) -> set[str]:
    """Return the parts of the key that differ: ``flags`` for any flag."""
    return {name.partition(".")[0] for name in run.key.differences(other.key)}


def _in_order(parts: Collection[str]) -> tuple[Across, ...]:
    return tuple(part for part in ACROSS if part in parts)


def _changed(run: Run, runs: Sequence[Run], across: Sequence[Across]) -> tuple[str, ...]:
    same = _same_pair(run, runs)
    names = run.key.differences(same[-1].key) if same else ()
    return tuple(name for name in names if name.partition(".")[0] not in across)


def _first(runs: Sequence[Run]) -> Sequence[Run]:
    """Return the first runs whose times can be compared with, where there are others since."""
    quiet = [run for run in runs if run.quiet]
    return quiet[:LAST] if len(quiet) > LAST else ()


@dataclass(frozen=True, slots=True)
class Remembered:
    """A drafter's run beside its past: the decision on both, and ``history`` of the entry (None: no run)."""

    decision: Decision
    history: History | None


def remember(
    report: Report,
    entry: DrafterReport,
    decision: Decision,
    *,
    folder: Path,
    limit: float,
    environ: Mapping[str, str],
    across: Sequence[Across] = (),
) -> Remembered:
    """Hold one drafter's entry against its past, and append the run if it is to be a reference.

    A history that cannot be read or written is said (``problem``) and spoils nothing else, unless the gate asks for
    it.

    :param decision: the entry's, before its past.
    :param folder: where ``history.jsonl`` is.
    :param limit: the loss that the gate allows (``max_regression``); 0 asks for nothing.
    :param across: parts of the key that may differ where no run has the same one.
    :param environ: the CI system's variables, of which the commit is kept.
    """
    past = look_back(report, entry, folder=folder, limit=limit, across=across)
    after = _beside(decision, past, limit=limit)
    if past.run is None:
        return Remembered(after, None)
    commit = next((environ[name] for name in COMMITS if environ.get(name)), None)
    run = replace(past.run, commit=commit, verdict=after.verdict, gate=after.gate)
    unsure = past.compared and all(check.result == "pass" for check in decision.gate_checks)
    kept, problem = False, past.problem
    try:
        kept = history.keep(run, path=folder / history.NAME, unsure=unsure)
    except (OSError, Timeout) as error:
        problem = str(error)
        # a past that is never kept can never be lost against
        past = replace(past, problem=f"this run cannot be kept: {problem}")
        after = _beside(decision, past, limit=limit)
    if problem is not None:
        logger.warning("history: %s", problem)
    return Remembered(after, _told(past, kept=kept, problem=problem))


def _beside(decision: Decision, past: Past, *, limit: float) -> Decision:
    return with_past(decision, past.check(limit=limit)) if limit else decision


def _told(past: Past, *, kept: bool, problem: str | None) -> History:
    return as_model(
        History,
        key=past.run and past.run.key.id,
        kept=kept,
        problem=problem,
        across=past.across,
        trend=trend(past.changes) if past.changes else None,
        changes=past.changes,
        runs=past.runs,
    )


def _said(change: Change, which: str) -> str:
    r, whom = change.ratio, f"the {which} {change.references} run{'s' * (change.references > 1)}"
    if change.noisy:
        return f"{change.measure}: other processes used the machine"
    if r is None:
        return f"{change.measure} shares too few prompts with {whom}"
    return f"{change.measure} {r.value:.3f} [{r.low:.3f}, {r.high:.3f}] of {whom}"


def _result(change: Change) -> Result:
    if change.trend == "regressed":
        return "fail"
    sure = change.ratio is not None and not change.noisy and change.ratio.low > 1 - change.minimum
    return "pass" if sure else "inconclusive"
