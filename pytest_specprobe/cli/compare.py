"""``specprobe compare A B``: is B slower, or accepted less, than A?"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_specprobe.cli.parser import Verbs

if TYPE_CHECKING:
    from pytest_specprobe.report.model.report import DrafterReport, Report
    from pytest_specprobe.report.store.history import Run
    from pytest_specprobe.report.store.regression import Change

_CODES = {"regressed": 1, "cannot tell": 10}
_NEVER = "workload"


def add(verbs: Verbs) -> None:
    """Add the verb."""
    verb = verbs.add_parser(
        "compare",
        help="is run B slower, or accepted less, than run A?",
        description="Compare run B with run A, paired by prompt. Exit 0 if B did not regress, 1 if it did, 10 if the "
        "intervals cannot tell, 2 for runs that are not comparable, invalid, broken or cut short.",
    )
    for name in ("a", "b"):
        verb.add_argument(
            name, metavar=name.upper(), help="a report.json, its directory, or the id of a run in the history"
        )
    verb.add_argument("--drafter", metavar="NAME", help="which drafter, where a report has several")
    verb.add_argument(
        "--across", metavar="PART[,PART]", default="",
        help="parts of the key that may differ because they are what is compared: engine, drafter, flags, ...",
    )  # fmt: skip
    verb.add_argument(
        "--history", type=Path, default=Path(".specprobe"), metavar="DIR|FILE", help="where ids are looked up"
    )
    verb.add_argument(
        "--minimum", type=float, default=0.05, metavar="SHARE", help="least change that counts (default: 0.05)"
    )
    verb.add_argument("--json", action="store_true", help="print JSON: both runs' ids and every change")
    verb.set_defaults(run=_compare)


def _compare(arguments: argparse.Namespace) -> int:
    from pytest_specprobe.errors import ProfileError
    from pytest_specprobe.foreign import json_text, printable
    from pytest_specprobe.report.build import as_model
    from pytest_specprobe.report.model.history import Change as ChangeRow
    from pytest_specprobe.report.store.regression import compare, trend

    if not 0 < arguments.minimum < 1:
        raise ProfileError(("--minimum is a share between 0 and 1",), fix="specprobe compare --help")
    a, b = (_find(text, arguments) for text in (arguments.a, arguments.b))
    across = tuple(part.strip() for part in arguments.across.split(",") if part.strip())
    _require_comparable(a, b, across)
    changes = compare(b, [a], minimum=arguments.minimum)
    verdict = trend(changes)
    if arguments.json:
        rows = [as_model(ChangeRow, change).document() for change in changes]
        print(json_text({"schema": 1, "a": a.id, "b": b.id, "trend": verdict, "changes": rows}, indent=1))
    else:
        print(printable("\n".join(_page(a, b, changes, verdict))))
    return _CODES.get(verdict, 0)


def _find(text: str, arguments: argparse.Namespace) -> "Run":
    from pytest_specprobe.errors import ProfileError
    from pytest_specprobe.reading import Unreadable
    from pytest_specprobe.report.read import incomplete, read_report, report_of
    from pytest_specprobe.report.store import history

    if not Path(text).exists():
        try:
            found = [run for run in history.read(arguments.history).runs if run.id == text]
        except Unreadable as error:
            raise ProfileError((str(error),), fix="name the history's file") from error
        if not found:
            raise ProfileError(
                (f"{text!r} is neither a report nor the id of a run in {arguments.history}",),
                fix="`specprobe history` lists the ids",
            )
        return found[0]
    document = read_report(Path(text))
    try:
        return _run(report_of(document), text, arguments)
    except (ArithmeticError, ValueError) as error:
        raise incomplete(Path(document["path"])) from error


def _run(report: "Report", text: str, arguments: argparse.Namespace) -> "Run":
    """Return the run of a report.

    :raises ValueError: if a number in it is one that no ratio can be made of.
    """
    from pytest_specprobe.errors import ProfileError
    from pytest_specprobe.report.store import history

    entries = [e for e in report.drafters if arguments.drafter in (None, e.name)]
    if len(entries) != 1:
        names = ", ".join(e.name for e in report.drafters)
        raise ProfileError((f"{text} holds {names or 'no drafter'}",), fix="say which one: --drafter NAME")
    (entry,) = entries
    why = _unfit(entry)
    if why is not None:
        raise ProfileError((f"{text}: {entry.name} {why}",), fix="compare runs that measured what they say")
    run = history.run_of(report, entry)
    if run is None:
        raise ProfileError(
            (f"{text}: {entry.name} was not measured, or it is not known on what",),
            fix="compare runs that reached the acceptance pass",
        )
    return history.Run.parse(run.to_json())


def _unfit(entry: "DrafterReport") -> str | None:
    """Return why the numbers of a drafter's entry say nothing; a narrowed run is fit without a verdict."""
    wrong = [f"{c.id}: saw {c.seen}" for c in entry.checks if (c.severity, c.status) == ("error", "fail")]
    why = (*wrong, *entry.invalid, *entry.reasons, "no reason is given")[0]
    if entry.verdict == "broken":
        return f"is broken ({why})"
    if wrong or entry.invalid or entry.gate == "error":
        return f"is an invalid measurement ({why})"
    ended = any(phase.name == "decide" and phase.status == "done" for phase in entry.phases)
    return None if ended else "was cut short before anything was decided"


def _require_comparable(a: "Run", b: "Run", across: tuple[str, ...]) -> None:
    from pytest_specprobe.errors import ProfileError
    from pytest_specprobe.report.render.text import brief

    differing = a.key.differences(b.key)
    wrong = {name: both for name, both in differing.items() if name.partition(".")[0] not in set(across) - {_NEVER}}
    if not wrong:
        return
    parts = sorted({name.partition(".")[0] for name in wrong} - {_NEVER})
    fix = "probe both with the same prompts: nothing pairs them otherwise"
    if _NEVER not in wrong:
        fix = f"if that is what you want to compare, say so: --across {','.join(sorted({*across, *parts}))}"
    raise ProfileError(tuple(f"{name} differs: {brief(x)} and {brief(y)}" for name, (x, y) in wrong.items()), fix=fix)


def _page(a: "Run", b: "Run", changes: "tuple[Change, ...]", verdict: str) -> Iterator[str]:
    from pytest_specprobe.report.render.text import MEASURES, brief, interval, number
    from pytest_specprobe.report.store.regression import judged

    least = changes[0].minimum
    yield f"{verdict.upper()}   B against A: ratios and their 95 % intervals; a change counts from {least:.0%}"
    for label, run in (("A", a), ("B", b)):
        commit = f", commit {run.commit[:10]}" if run.commit else ""
        yield f"  {label}  {run.id}  {run.created[:16].replace('T', ' ')}  {run.drafter} on {run.target}{commit}"
    for name, (old, new) in a.key.differences(b.key).items():
        yield f"  differs in {name}: {brief(old)} -> {brief(new)}"
    for change in changes:
        values = [
            number(run.values[change.measure]["value"]) if change.measure in run.values else "?" for run in (a, b)
        ]
        ratio = interval(change.ratio) if change.ratio else "fewer than two shared prompts"
        aside = "" if change in judged(changes) else ", not judged"
        shared = f", {change.ratio.n} prompts" if change.ratio else ""
        yield (
            f"  {MEASURES[change.measure]:<16}{values[0]:>8} -> {values[1]:<8} {ratio} x  {change.trend}"
            f" (run-to-run spread {change.spread:.1%}{shared}{aside})"
        )
