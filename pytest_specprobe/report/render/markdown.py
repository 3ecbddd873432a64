"""The Markdown summary of a report, for the summary page of a CI job.

Fits GitHub (``GITHUB_STEP_SUMMARY``) and GitLab alike: tables, lists and ``<details>``, nothing else. Text from a
report is escaped, since names and server answers may hold anything.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pytest_specprobe.report.model.report import DrafterReport, Report
from pytest_specprobe.report.render.numbers import numbers, provenance
from pytest_specprobe.report.render.text import GATE_SAYS, VERDICT_SAYS, past, rankings, unexplained

logger = logging.getLogger(__name__)
GITHUB = "GITHUB_STEP_SUMMARY"
_LIMIT = 1 << 20  # bytes that GitHub takes of one step
_NOTE = b"\n</details>\n\n**Cut: the summary is longer than GitHub takes; report.json has all of it.**\n"
_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~$@!&])")
_MARKS = {"pass": "✅", "fail": "❌", "error": "❌", "inconclusive": "❔", None: "⏸"}


def markdown(report: Report) -> Iterator[str]:
    """Yield the lines of the summary: for each drafter the verdict, why, the numbers, what to do."""
    for entry in report.drafters:
        yield from _drafter(entry)
    for label, text in rankings(report):
        yield f"- {escape(label)} {escape(text)}"
    yield ""
    tool = report.tool
    yield f"<sub>{escape(tool.name)} {escape(tool.version)}, {escape(report.created)}</sub>"


def to_step_summary(report: Report, *, environ: Mapping[str, str]) -> None:
    """Append the summary to the file that GitHub Actions names, if it names one; never fails a run."""
    path = environ.get(GITHUB)
    if not path:
        return
    try:
        with Path(path).open("ab") as file:
            file.writelines(_fitting(markdown(report), room=_LIMIT - file.tell()))
    except OSError as error:
        logger.warning("job summary not written: %s", error)


def _fitting(lines: Iterable[str], *, room: int) -> Iterator[bytes]:
    """Yield the lines, encoded, as long as they and a note fit into ``room`` bytes; GitHub takes no longer file."""
    room -= len(_NOTE)
    for line in lines:
        data = f"{line}\n".encode(errors="replace")
        room -= len(data)
        if room < 0:
            yield _NOTE
            return
        yield data


def escape(text: object) -> str:
    """Return text that Markdown shows as it is, on one line."""
    # an address would become a link by itself
    shown = _SPECIAL.sub(r"\\\1", str(text)).replace("://", "\\://").replace("www.", "www\\.")
    return " ".join(shown.split())


def _drafter(entry: DrafterReport) -> Iterator[str]:
    verdict = entry.verdict
    who = f"{escape(entry.name)} on {escape(entry.target)}"
    yield f"## {_MARKS[entry.gate]} {who}: {verdict or 'no verdict'}"
    yield ""
    yield f"{VERDICT_SAYS[verdict].capitalize()}. Gate: **{GATE_SAYS[entry.gate]}**."
    yield ""
    for check in entry.gate_checks:
        if check.result != "pass":
            seen, wanted = escape(check.seen), escape(check.wanted)
            yield f"- {escape(check.name)}: {escape(check.result)}, saw {seen}, wanted {wanted}"
    yield from (f"- {escape(reason)}" for reason in entry.reasons)
    if entry.history:
        yield f"- {escape(past(entry.history))}"
    yield ""
    yield from _numbers(entry)
    if entry.next:
        yield "**What to do:**"
        yield ""
        yield from (f"1. {escape(step)}" for step in entry.next)
        yield ""
    yield from _findings(entry)


def _numbers(entry: DrafterReport) -> Iterator[str]:
    rows = list(numbers(entry))
    if not rows:
        return
    if entry.gate == "error":
        yield "**Of an invalid measurement: shown to find the cause, not to be used.**"
        yield ""
    yield "| what | value \\[95 % interval\\] | how |"
    yield "| --- | --- | --- |"
    yield from (f"| {escape(row.label)} | {escape(row.value)} | {escape(row.how)} |" for row in rows)
    yield ""
    if entry.acceptance:
        yield escape(provenance(entry))
        yield ""


def _findings(entry: DrafterReport) -> Iterator[str]:
    wrong = unexplained(entry)
    if not wrong:
        return
    yield f"<details><summary>{len(wrong)} other findings</summary>"
    yield ""
    for finding in wrong:
        told = f"{finding.id} ({finding.culprit}): saw {finding.seen}. {finding.fix}"
        yield f"- {escape(finding.severity)}: {escape(told)}"
    yield ""
    yield "</details>"
    yield ""
