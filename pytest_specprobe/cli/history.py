"""``specprobe history``: the kept runs, key by key, each against the ones before it."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_specprobe.cli.parser import Verbs
from pytest_specprobe.errors import ProfileError
from pytest_specprobe.foreign import json_text, printable

if TYPE_CHECKING:
    from pytest_specprobe.report.store.history import History, Run
    from pytest_specprobe.report.store.regression import Change

_BARS = "▁▂▃▄▅▆▇█"
_SHORTEST = 6


def add(verbs: Verbs) -> None:
    """Add the verb."""
    verb = verbs.add_parser(
        "history",
        help="kept runs, each against the ones before it",
        description="Show the runs whose gate passed, or was open for this comparison alone, grouped by everything "
        "that makes runs comparable; runs of different groups are never compared. "
        "Exit 0, or 2 for unusable arguments.",
    )
    verb.add_argument(
        "path", nargs="*", type=Path, metavar="DIR|FILE",
        help="history.jsonl files or their directories, read together (default: .specprobe)",
    )  # fmt: skip
    verb.add_argument("--drafter", metavar="NAME", help="only the runs of this drafter profile")
    verb.add_argument("--last", type=int, default=20, metavar="N", help="rows to show of each group (default: 20)")
    verb.add_argument(
        "--minimum", type=float, default=0.05, metavar="SHARE", help="least change that counts (default: 0.05)"
    )
    verb.add_argument("--json", action="store_true", help="print JSON: the runs, without prompts, and their trends")
    verb.set_defaults(run=_history)


def _history(arguments: argparse.Namespace) -> int:
    from pytest_specprobe.reading import Unreadable
    from pytest_specprobe.report.store import history

    if not 0 < arguments.minimum < 1 or arguments.last < 1:
        raise ProfileError(
            ("--minimum is a share between 0 and 1, --last at least 1",), fix="specprobe history --help"
        )
    missing = tuple(f"{path} is not there" for path in arguments.path if not path.exists())
    if missing:
        raise ProfileError(missing, fix="name a history.jsonl or its folder")
    try:
        found = history.read(*(arguments.path or [Path(".specprobe")]))
    except Unreadable as error:
        raise ProfileError((str(error),), fix="name a history.jsonl or its folder") from error
    if arguments.drafter:
        found = found.of(arguments.drafter)
    if arguments.json:
        print(json_text(_document(found, minimum=arguments.minimum), indent=1))
    else:
        print(printable("\n".join(_page(found, last=arguments.last, minimum=arguments.minimum))))
    return 0


def _against(run: "Run", past: "Sequence[Run]", minimum: float) -> "tuple[Change, ...]":
    from pytest_specprobe.report.store.regression import LAST, compare

    return compare(run, past[-LAST:], minimum=minimum) if past else ()


def _document(found: "History", *, minimum: float) -> dict[str, Any]:
    from pytest_specprobe.report.build import as_model
    from pytest_specprobe.report.model.history import Change as ChangeRow

    runs = []
    for run in found.runs:
        line = run.to_json()
        changes = _against(run, found.before(run), minimum)
        left = {name: line[name] for name in line if name not in ("rows", "columns", "schema")}
        rows = [as_model(ChangeRow, change).document() for change in changes]
        runs.append({"id": run.id, **left, "key_id": run.key.id, "changes": rows})
    return {"schema": 1, "runs": runs, "skipped": list(found.skipped)}


def _page(found: "History", *, last: int, minimum: float) -> Iterator[str]:
    if not found.runs:
        yield "no run is kept here yet: a run with --specprobe-drafter is kept when its gate passes"
    groups: dict[str, list[Run]] = {}
    for run in found.runs:
        groups.setdefault(run.key.id, []).append(run)
    before: dict[tuple[str, str], Run] = {}
    for runs in groups.values():
        name = (runs[0].drafter, runs[0].target)
        yield from _head(runs[0], before.get(name))
        yield from _table(runs, last=last, minimum=minimum)
        yield from _drift(runs, minimum=minimum)
        yield ""
        before[name] = runs[-1]
    for text in found.skipped:
        yield f"left out: {text}"


def _head(run: "Run", previous: "Run | None") -> Iterator[str]:
    from pytest_specprobe.report.render.text import brief

    parts = run.key.parts
    yield (
        f"{run.drafter} on {run.target}: {parts.get('engine')}, {parts.get('device')} ({parts.get('hardware')}), "
        f"steps/topk/tokens {parts.get('speculation')}, {parts.get('concurrency')} in flight   key {run.key.id}"
    )
    if previous is not None:
        changed = previous.key.differences(run.key)
        shown = [f"{name} {brief(old)} -> {brief(new)}" for name, (old, new) in list(changed.items())[:4]]
        more = f" and {len(changed) - 4} more" if len(changed) > 4 else ""
        yield f"  not comparable with the group above: {'; '.join(shown)}{more}"


def _table(runs: "Sequence[Run]", *, last: int, minimum: float) -> Iterator[str]:
    from pytest_specprobe.report.render.text import interval
    from pytest_specprobe.report.store.regression import trend

    rows = [("run", "when", "commit", "verdict", "accept length", "tok/s", "speedup", "against the runs before")]
    for at, run in enumerate(runs):
        if at < len(runs) - last:
            continue
        changes = _against(run, runs[:at], minimum)
        rows.append((
            run.id, run.created[:16].replace("T", " "), (run.commit or "")[:10], run.verdict or "",
            interval(run.estimate("accept_length")), interval(run.estimate("tok_per_s")),
            interval(run.estimate("speedup")), _said(changes, trend(changes)) if changes else "first of its key",
        ))  # fmt: skip
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
    if len(runs) > last:
        yield f"  {len(runs) - last} earlier runs are not shown (--last)"
    for label, name in (("accept length", "accept_length"), ("tok/s", "tok_per_s")):
        line = _spark([run.values[name]["value"] for run in runs if name in run.values])
        if line:
            yield f"  {label:<14}{line}"


def _said(changes: "Sequence[Change]", verdict: str) -> str:
    from pytest_specprobe.report.render.text import MEASURES, interval
    from pytest_specprobe.report.store.regression import judged

    worst = next(change for change in judged(changes) if change.trend == verdict)
    ratio = interval(worst.ratio) if worst.ratio else "too few shared prompts"
    return f"{verdict}: {MEASURES[worst.measure]} {ratio} x" if worst.ratio else f"{verdict}: {ratio}"


def _drift(runs: "Sequence[Run]", *, minimum: float) -> Iterator[str]:
    """Hold the newest run against the first ones too: a slow drift hides from the last few."""
    from pytest_specprobe.report.store.regression import LAST, compare, trend

    if len(runs) <= LAST + 1:
        return
    first = min(LAST, len(runs) // 2)
    changes = compare(runs[-1], runs[:first], minimum=minimum)
    yield f"  newest against the first {first} runs: {_said(changes, trend(changes))}"


def _spark(values: Sequence[float]) -> str:
    """Return a line of bars from the least to the largest value; empty for too few to show a course."""
    if len(values) < _SHORTEST:
        return ""
    low, high = min(values), max(values)
    room = (high - low) or 1.0
    bars = "".join(_BARS[round((value - low) / room * (len(_BARS) - 1))] for value in values)
    return f"{bars}  {low:.2f} to {high:.2f}"
