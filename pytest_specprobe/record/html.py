"""The HTML page of a report: one file, no network, light and dark.

Invariant: everything that comes from a report is escaped (names and texts may be anyone's); only the drawings, which
escape their own texts, go in as they are.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, UndefinedError
from markupsafe import Markup

from pytest_specprobe.record.numbers import numbers, provenance
from pytest_specprobe.record.text import (
    GATE_SAYS,
    TONES,
    VERDICT_SAYS,
    Entry,
    kept_together,
    number,
    past,
    rankings,
    seconds,
    unexplained,
)

NEEDS = "Plots need matplotlib: pip install 'pytest-specprobe[report]', then make this page again."
_TEMPLATES = Path(__file__).with_name("templates")


def page(report: Mapping[str, Any]) -> str:
    """Return the page of a report, whole; without matplotlib it says what plots need.

    :raises KeyError: if the report lacks a field.
    """
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"number": number, "seconds": seconds, "together": kept_together}
    try:
        return environment.get_template("report.html").render(
            report=report,
            drafters=[_drafter(entry) for entry in report["drafters"]],
            rankings=list(rankings(report)),
            needs=NEEDS,
        )
    except UndefinedError as error:
        raise KeyError(str(error)) from error


def _drafter(entry: Entry) -> dict[str, Any]:
    server = entry["server"]
    return {
        "entry": entry,
        "verdict": entry["verdict"] or "no verdict",
        "tone": TONES[entry["verdict"]],
        "gate_tone": TONES[entry["gate"]] if entry["gate"] else "none",
        "verdict_says": VERDICT_SAYS[entry["verdict"]],
        "gate_says": GATE_SAYS[entry["gate"]],
        "numbers": list(numbers(entry)),
        "provenance": provenance(entry) if entry["acceptance"] else "",
        "past": past(entry["history"]) if entry["history"] else "",
        "wrong": unexplained(entry),
        "plots": _plots(entry),
        "rows": _rows(entry),
        "flags": sorted(
            (k, v) for k, v in ((server and server["flags"]) or {}).items() if v not in (None, "", [], {})
        ),
    }


def _plots(entry: Entry) -> list[Any] | None:
    """Return title, words and drawing of every plot; None where matplotlib is not installed."""
    try:
        from pytest_specprobe.record.plots import plots  # noqa: PLC0415 - an extra, and slow to import
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("matplotlib"):
            raise
        return None
    # matplotlib escaped every text in it
    return [{"title": p.title, "says": p.says, "svg": Markup(p.svg)} for p in plots(entry)]  # noqa: S704 - our own drawing


def _rows(entry: Entry) -> list[Mapping[str, Any]]:
    """Return one row per prompt: its counts, its speed, and why it counts in nothing if so."""
    if not entry["acceptance"]:
        return []
    fast = {row["id"]: row for row in (entry["throughput"] or {}).get("prompts", ())}
    rows: list[Mapping[str, Any]] = []
    for row in entry["acceptance"]["prompts"]:
        timed = fast.get(row["id"])
        base = timed and timed["baseline_decode_s"] and timed["baseline_tokens"] / timed["baseline_decode_s"]
        rows.append({
            **row,
            "accept_length": 1 + row["accepted"] / row["rounds"] if row["rounds"] else None,
            "tok_per_s": timed["tokens"] / timed["decode_s"] if timed else None,
            "baseline_tok_per_s": base or None,
        })  # fmt: skip
    return rows
