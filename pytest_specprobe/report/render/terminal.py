"""The terminal summary: one screen per drafter, rendered from the report alone.

Verdict first, then why, then the numbers (value, 95 % interval, how it is computed, of how many), then what to do.
"""

import textwrap
from collections.abc import Iterator, Sequence

from pytest_specprobe.foreign import printable
from pytest_specprobe.report.model.report import DrafterReport, Report
from pytest_specprobe.report.render.numbers import numbers, provenance
from pytest_specprobe.report.render.text import (
    GATE_SAYS,
    NO_BREAK,
    TONES,
    VERDICT_SAYS,
    kept_together,
    past,
    rankings,
    unexplained,
)

WIDTH = 100
_LABEL = 17
_FINDINGS = 4
_GOOD, _BAD, _OPEN, _BOLD, _DIM, _OFF = "\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[1m", "\x1b[2m", "\x1b[0m"
_COLOURS = {"good": _GOOD, "bad": _BAD, "open": _OPEN}


def summary(report: Report, *, path: str = "", colour: bool = False, width: int = WIDTH) -> Iterator[str]:
    """Yield the lines of the terminal summary.

    :param path: the file of the report, which is shown.
    :param colour: whether to colour verdict and labels with ANSI codes: for a terminal only.
    :param width: columns to wrap at; continued lines hang under their text.
    """
    paint = _Paint(colour=colour, width=max(width, 60))
    entries = report.drafters
    if not entries:
        return
    yield " specprobe ".center(paint.width, "=")
    for entry in entries:
        yield from _drafter(entry, paint)
        yield ""
    for label, text in rankings(report):
        yield from paint.row(label, text)
    if path:
        yield from paint.row("report", path)
        yield from paint.row("", "a page with plots: specprobe report --format html --output report.html")


class _Paint:
    """Lays out labelled rows; colours them if asked to."""

    def __init__(self, *, colour: bool, width: int) -> None:
        self.width = width
        self._colour = colour

    def ink(self, text: str, code: str) -> str:
        return f"{code}{text}{_OFF}" if self._colour else text

    def row(self, label: str, text: str, code: str = _DIM) -> Iterator[str]:
        room = self.width - _LABEL - 2
        lines = textwrap.wrap(
            kept_together(printable(text)), room, break_on_hyphens=False, break_long_words=False
        ) or [""]
        first, *others = (line.replace(NO_BREAK, " ") for line in lines)
        yield f"  {self.ink(f'{printable(label):<{_LABEL}}', code)}{first}"
        yield from (f"{'':{_LABEL + 2}}{line}" for line in others)

    def rows(self, label: str, texts: Sequence[str], code: str = _DIM) -> Iterator[str]:
        for at, text in enumerate(texts):
            yield from self.row(label if at == 0 else "", text, code)


def _drafter(entry: DrafterReport, paint: _Paint) -> Iterator[str]:
    verdict, gate = entry.verdict, entry.gate
    code = _COLOURS[TONES[verdict]] + _BOLD
    head = (verdict or "no verdict").upper()
    name, target = printable(entry.name), printable(entry.target)
    yield f"{paint.ink(name, _BOLD)} on {target}: {paint.ink(head, code)}, {VERDICT_SAYS[verdict]}"
    gate_code = _COLOURS[TONES[gate]] if gate else _DIM
    yield from paint.row("gate", GATE_SAYS[gate] + _gate_detail(entry), gate_code)
    yield from paint.rows("why", entry.reasons)
    wrong = unexplained(entry)
    for finding in wrong[:_FINDINGS]:
        text = f"{finding.id} ({finding.culprit}): saw {finding.seen}. {finding.fix}"
        yield from paint.row(finding.severity, text, _OPEN)
    if len(wrong) > _FINDINGS:
        yield from paint.row("", f"and {len(wrong) - _FINDINGS} more findings in the report")
    if gate == "error" and entry.acceptance:
        yield from paint.row("numbers", "of an invalid measurement: shown to find the cause, not to be used", _BAD)
    for row in numbers(entry):
        yield from paint.row(row.label, f"{row.value}  ({row.how})" if row.how else row.value)
    if entry.history:
        yield from paint.row("before", past(entry.history))
    if entry.acceptance:
        yield from paint.row("measured", provenance(entry))
    yield from paint.rows("what to do", entry.next, _BOLD)


def _gate_detail(entry: DrafterReport) -> str:
    open_ = [c for c in entry.gate_checks if c.result != "pass"]
    if not open_:
        return ""
    return ": " + "; ".join(f"{c.name} saw {c.seen}, wanted {c.wanted}" for c in open_)
