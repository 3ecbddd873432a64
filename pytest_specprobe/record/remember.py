"""The end of a run: hold each drafter against its own past, then keep it if its gate passed."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from filelock import Timeout

from pytest_specprobe.decide.gate import Result, worst
from pytest_specprobe.record import history
from pytest_specprobe.record.history import Run, run_of
from pytest_specprobe.record.regression import LAST, MINIMUM, Change, compare, judged, trend

logger = logging.getLogger(__name__)
CHECK = "max_regression"
COMMITS = ("GITHUB_SHA", "CI_COMMIT_SHA")


def remember(
    report: dict[str, Any], *, folder: Path, limits: Mapping[str, float], environ: Mapping[str, str]
) -> None:
    """Add ``history`` to every entry of ``report`` in place, and append the runs whose gate passed.

    A history that cannot be read or written is said in the entry (``problem``) and spoils nothing else.

    :param folder: where ``history.jsonl`` is.
    :param limits: by drafter, the loss that its gate allows (``max_regression``); 0 asks for nothing.
    :param environ: the CI system's variables, of which the commit is kept.
    """
    path = folder / history.NAME
    commit = next((environ[name] for name in COMMITS if environ.get(name)), None)
    for entry in report["drafters"]:
        run = run_of(report, entry, commit=commit)
        if run is None:
            continue
        limit = limits.get(entry["name"], 0.0)
        try:
            past = history.read(path).before(run)[-LAST:]
            valid = run.gate != "error"
            changes = compare(run, past, minimum=limit or MINIMUM) if past and valid else ()
            if limit and valid:
                _gate(entry, changes, limit=limit)
            kept = history.keep(run_of(report, entry, commit=commit), path=path)
        except (OSError, Timeout) as error:
            logger.warning("history not kept: %s", error)
            entry["history"] = _told(run, (), (), kept=False, problem=str(error))
        else:
            entry["history"] = _told(run, past, changes, kept=kept, problem=None)


def _told(
    run: Run, past: tuple[Run, ...], changes: tuple[Change, ...], *, kept: bool, problem: str | None
) -> dict[str, Any]:
    return {
        "key": run.key.id,
        "kept": kept,
        "problem": problem,
        "trend": trend(changes) if changes else None,
        "changes": [change.to_json() for change in changes],
        "runs": [
            {"created": r.created, "commit": r.commit, "values": {n: dict(v) for n, v in r.values.items()}}
            for r in past
        ],
    }


def _gate(entry: dict[str, Any], changes: tuple[Change, ...], *, limit: float) -> None:
    """Add the condition to the gate of an entry that has one; a first run has nothing to lose against."""
    if entry["gate"] is None or not entry["gate_checks"]:
        return
    results = [(_result(change), change) for change in (judged(changes) if changes else ())]
    found = worst(result for result, _ in results)
    seen = "; ".join(_said(change) for result, change in results if result == found)
    check = {
        "name": CHECK,
        "result": found,
        "seen": seen or "no earlier run of the same key",
        "wanted": f"at least {1 - limit:g} of before",
    }
    entry["gate_checks"].append(check)
    entry["gate"] = worst(check["result"] for check in entry["gate_checks"])
    if found != "pass":
        entry["reasons"].append(f"against the last {changes[0].references} runs of the same key: {seen}")


def _said(change: Change) -> str:
    r = change.ratio
    if change.noisy:
        return f"{change.measure}: other processes used the machine"
    return f"{change.measure} " + (
        "shares too few prompts" if r is None else f"{r.value:.3f} [{r.low:.3f}, {r.high:.3f}]"
    )


def _result(change: Change) -> Result:
    if change.trend == "regressed":
        return "fail"
    sure = change.ratio is not None and not change.noisy and change.ratio.low > 1 - change.minimum
    return "pass" if sure else "inconclusive"
