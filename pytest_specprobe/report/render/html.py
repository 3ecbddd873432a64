"""The HTML page of a report: one file, no network, light and dark.

Invariant: everything that comes from a report is escaped (names and texts may be anyone's); only the drawings, which
escape their own texts, go in as they are.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pytest_specprobe.report.model.acceptance import AcceptanceRow
from pytest_specprobe.report.model.report import DrafterReport, Report
from pytest_specprobe.report.model.throughput import SpeedRow
from pytest_specprobe.report.render.numbers import numbers, provenance
from pytest_specprobe.report.render.text import (
    GATE_SAYS,
    TONES,
    VERDICT_SAYS,
    kept_together,
    number,
    past,
    rankings,
    seconds,
    unexplained,
)

NEEDS = "Plots need matplotlib: pip install 'pytest-specprobe[report]', then make this page again."
_TEMPLATES = Path(__file__).with_name("templates")


def page(report: Report) -> str:
    """Return the page of a report, whole; without matplotlib it says what plots need."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"number": number, "seconds": seconds, "together": kept_together}
    return environment.get_template("report.html").render(
        report=report,
        drafters=[_drafter(entry) for entry in report.drafters],
        rankings=list(rankings(report)),
        needs=NEEDS,
    )


def _drafter(entry: DrafterReport) -> dict[str, Any]:
    server = entry.server
    return {
        "entry": entry,
        "verdict": entry.verdict or "no verdict",
        "tone": TONES[entry.verdict],
        "gate_tone": TONES[entry.gate] if entry.gate else "none",
        "verdict_says": VERDICT_SAYS[entry.verdict],
        "gate_says": GATE_SAYS[entry.gate],
        "numbers": list(numbers(entry)),
        "provenance": provenance(entry) if entry.acceptance else "",
        "past": past(entry.history) if entry.history else "",
        "wrong": unexplained(entry),
        "plots": _plots(entry),
        "rows": _rows(entry),
        "flags": sorted((k, v) for k, v in ((server and server.flags) or {}).items() if v not in (None, "", [], {})),
    }


def _plots(entry: DrafterReport) -> list[Any] | None:
    """Return title, words and drawing of every plot; None where matplotlib is not installed."""
    try:
        from pytest_specprobe.report.render.plots import plots  # noqa: PLC0415 - an extra, and slow to import
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("matplotlib"):
            raise
        return None
    # matplotlib escaped every text in it
    return [{"title": p.title, "says": p.says, "svg": Markup(p.svg)} for p in plots(entry)]  # noqa: S704 - our own drawing


@dataclass(frozen=True, slots=True)
class _Row:
    """What is shown of one prompt: its counts, and its speeds in tok/s; None where there is none."""

    seen: AcceptanceRow
    accept_length: float | None
    tok_per_s: float | None
    baseline_tok_per_s: float | None


def _rows(entry: DrafterReport) -> list[_Row]:
    """Return one row per prompt: its counts, its speed, and why it counts in nothing if so."""
    if not entry.acceptance:
        return []
    fast = {row.id: row for row in (entry.throughput.prompts if entry.throughput else ())}
    return [_row(row, fast.get(row.id)) for row in entry.acceptance.prompts]


def _row(row: AcceptanceRow, timed: SpeedRow | None) -> _Row:
    return _Row(
        seen=row,
        accept_length=1 + row.accepted / row.rounds if row.rounds else None,
        tok_per_s=timed.tokens / timed.decode_s if timed else None,
        baseline_tok_per_s=(
            timed.baseline_tokens / timed.baseline_decode_s
            if timed and timed.baseline_decode_s and timed.baseline_tokens
            else None
        ),
    )
