"""The Markdown summary, read back by a Markdown parser."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from pytest_specprobe.profiles import Gate
from pytest_specprobe.report.read import report_of
from pytest_specprobe.report.render.markdown import escape, markdown, to_step_summary
from tests.support.simulated_reports import World, entry, fault, report

PARSER = MarkdownIt("commonmark").enable("table")
FINETUNE = World(accept=0.4, round_s=0.0225)
HOSTILE = "<script>alert(1)</script> | [x](http://y) `*a*` # \n| - @all"


def rendered(*entries: dict[str, Any]) -> str:
    html: str = PARSER.render("\n".join(markdown(report_of(report(*entries)))))
    return html


def test_verdict_numbers_and_next_steps_are_there() -> None:
    html = rendered(entry(FINETUNE))
    assert "<h2>✅ aq_k2_mini on mini_k25: finetune</h2>" in html
    rows = re.findall(r"<tr>\n<td>(.*?)</td>", html)
    assert rows[:2] == ["accept length", "SGLang's own"]
    assert "speedup" in rows
    assert "<ol>" in html


@pytest.mark.parametrize(("gate", "mark"), [(Gate(min_tok_per_s=1e6), "❌"), (Gate(min_speedup=0.83), "❔")])
def test_the_gate_shows_at_a_glance(gate: Gate, mark: str) -> None:
    html = rendered(entry(FINETUNE, gate=gate))
    assert f"<h2>{mark}" in html
    assert "wanted" in html


def test_whatever_a_name_holds_is_shown_and_not_obeyed() -> None:
    spoiled = entry(FINETUNE, findings=[fault("vocab.stop-ids", severity="warning")])
    spoiled |= {"target": HOSTILE, "reasons": [HOSTILE], "next": [HOSTILE]}
    spoiled["checks"][0]["seen"] = HOSTILE
    html = rendered(spoiled)
    assert "<script>" not in html
    assert "<a " not in html
    assert "<em>" not in html
    assert html.count("&lt;script&gt;") == 4


@given(st.text(alphabet=st.characters(blacklist_categories=["Cs", "Cc"]), max_size=40))
def test_escaped_text_comes_back_as_it_was(text: str) -> None:
    html = PARSER.render(f"x {escape(text)}")
    shown = html.removeprefix("<p>").removesuffix("</p>\n")
    for name, char in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&amp;", "&")):
        shown = shown.replace(name, char)
    assert shown == f"x {' '.join(text.split())}".strip()


def test_github_gets_it_appended(tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("# before\n")
    told = report_of(report(entry(FINETUNE)))
    to_step_summary(told, environ={"GITHUB_STEP_SUMMARY": str(summary)})
    text = summary.read_text()
    assert text.startswith("# before\n")
    assert text == "# before\n" + "\n".join(markdown(told)) + "\n"


def test_elsewhere_nothing_is_written_and_a_bad_path_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    to_step_summary(report_of(report(entry(FINETUNE))), environ={})
    to_step_summary(
        report_of(report(entry(FINETUNE))), environ={"GITHUB_STEP_SUMMARY": str(tmp_path / "no" / "file")}
    )
    assert not list(tmp_path.iterdir())
    assert "job summary not written" in caplog.text
