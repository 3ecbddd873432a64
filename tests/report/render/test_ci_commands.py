"""What others wrote is not obeyed by a CI job: no command at the start of a line, no mark in one, no long page."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_specprobe.errors import BootError, ProfileError
from pytest_specprobe.findings import Finding, require
from pytest_specprobe.foreign import SAID, json_text, one_line, printable, unmarked
from pytest_specprobe.report.read import report_of
from pytest_specprobe.report.render.markdown import GITHUB, escape, markdown, to_step_summary
from pytest_specprobe.report.render.terminal import summary
from tests.support.simulated_reports import World, entry, report

MARKS = ("##vso[", "##[", "##teamcity[")
# Commands, line ends of all kinds, and blanks, in any order.
PIECES = st.sampled_from((
    "::error::x", "::", ":", "::set-output name=a::b", "##vso[task.setvariable]", "##[error]", "##[", "##", "#", "[",
    "##teamcity[x]", "vso[", "\n", "\r", "\r\n", "\x0b", "\x0c", "\x85", "\u2028", "\u2029", " ", "\t", "\x1b[31m",
    "\u200b", "word", "a" * 90, "`", "|", "<img src=x>", "](http://x)", "\x00",
))  # fmt: skip
FOREIGN = st.lists(PIECES, max_size=12).map("".join)


def hostile(text: str) -> dict[str, Any]:
    """Return a report that has the text wherever a server, a file or a history may put one."""
    said = entry(World())
    check = {"id": "a.b", "severity": "error", "status": "fail", "culprit": "engine", "seen": text,
             "expected": text, "why": text, "fix": text}  # fmt: skip
    said |= {"name": text, "target": f"{text}t", "reasons": [text, f"so {text}"], "next": [text, f"do {text}"]}
    said |= {"checks": [check, check | {"severity": "warning"}]}
    said |= {"gate_checks": [{"name": text, "result": "fail", "seen": text, "wanted": text}]}
    return report(said)


def obeyed(text: str) -> list[str]:
    """Return the lines that a CI job would obey."""
    return [
        line for line in text.splitlines() if line.lstrip().startswith("::") or any(mark in line for mark in MARKS)
    ]


@given(text=FOREIGN)
def test_no_printed_text_holds_a_command(text: str) -> None:
    assert obeyed(printable(text)) == []
    assert obeyed(unmarked(text)) == []
    assert obeyed(printable(f"words {text}\n{text}")) == []


@given(text=FOREIGN)
def test_a_text_on_one_line_is_one_line_and_short(text: str) -> None:
    shown = one_line(text * 9)
    assert len(shown.splitlines()) <= 1
    assert len(shown) < SAID + 40


@given(text=FOREIGN)
def test_no_error_holds_a_command(text: str) -> None:
    for error in (
        BootError(f"it said {text}", culprit="engine", fix=text, detail=f"last lines:\n{text}"),
        ProfileError((text, text), fix=text),
    ):
        assert obeyed(str(error)) == []
        own = ("  culprit: ", "  next: ", "  | ")
        assert all(line.startswith(own) for line in str(error).split("\n")[1:])


@given(text=FOREIGN)
def test_no_finding_holds_a_command_or_says_more_than_is_read(text: str) -> None:
    made = Finding(
        id="a.b",
        severity="error",
        status="fail",
        culprit="engine",
        seen=text * 50,
        expected=text,
        why="w",
        fix="f",
    )
    assert len(made.seen) < SAID + 40
    assert len(made.line().splitlines()) == 1
    with pytest.raises(Exception, match=r"a\.b") as caught:
        require([made, made])
    assert obeyed(str(caught.value)) == []


@given(text=FOREIGN)
def test_json_is_the_same_document_and_holds_no_command(text: str) -> None:
    document = {"seen": text, text: [text, {"a": f"##{text}"}]}
    written = json_text(document, indent=1)
    assert json.loads(written) == document
    assert obeyed(written) == []


@settings(deadline=None)
@given(text=FOREIGN, width=st.integers(60, 120))
def test_no_rendering_of_a_report_holds_a_command(text: str, width: int) -> None:
    report = report_of(hostile(text))
    assert obeyed("\n".join(summary(report, path=text, width=width))) == []
    assert obeyed("\n".join(markdown(report))) == []


@given(text=FOREIGN)
def test_no_id_of_a_check_holds_a_command(text: str) -> None:
    """An id is shown as it is, since a report with any other is refused when it is read."""
    document = hostile("x")
    document["drafters"][0]["checks"][0]["id"] = f"a.{text}"
    try:
        shown = report_of(document)
    except ValueError:
        return
    assert re.fullmatch(r"[a-z]+\.[a-z0-9-]+", shown.drafters[0].checks[0].id)


@given(text=FOREIGN)
def test_markdown_of_others_is_text(text: str) -> None:
    shown = escape(text)
    assert len(shown.splitlines()) <= 1
    for sign in ("`", "|", "<", "](", "://"):
        bare = shown.replace(f"\\{sign[0]}", "")
        assert sign not in bare


def test_the_step_summary_fits_what_github_takes(tmp_path: Path) -> None:
    path = tmp_path / "summary.md"
    path.write_bytes(b"what an earlier tool wrote\n" * 1000)
    report = hostile("\u00fc" * 200)
    report["drafters"] = report["drafters"] * 400
    to_step_summary(report_of(report), environ={GITHUB: str(path)})
    assert (1 << 20) - 4096 < path.stat().st_size <= 1 << 20
    assert "Cut: the summary is longer" in path.read_text()
    before = path.read_bytes()
    to_step_summary(report_of(report), environ={GITHUB: str(path)})
    assert path.stat().st_size - len(before) < 200
    path.unlink()
    to_step_summary(report_of(hostile("x")), environ={GITHUB: str(path)})
    assert "Cut:" not in path.read_text()
