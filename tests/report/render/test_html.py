"""The HTML page: one file that asks nobody for anything, escapes what it is given, and is themed to the last line."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from pytest_specprobe.cli import main
from pytest_specprobe.report.read import report_of
from pytest_specprobe.report.render.html import NEEDS, page
from tests.support.simulated_reports import World, entry, fault, remembered, report

HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(1)>$\\frac{1}{2}$&'
TITLES = (
    "Acceptance by position", "What accept length pays", "Accept length by workload", "Accept length by context",
    "Where the time went",
)  # fmt: skip


class Reader(HTMLParser):
    """Every tag with its attributes, and the text outside of drawings."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in {"meta", "br", "img", "link", "input"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes nothing"


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    """A report with every plot that one run can have, and a past."""
    return report(entry(World(accept=0.4, round_s=0.0225), findings=[fault("vocab.stop-ids", severity="warning")]))


@pytest.fixture(scope="module")
def text(whole: dict[str, Any]) -> str:
    return page(report_of(whole))


def test_it_has_the_verdict_the_numbers_and_every_plot(text: str, whole: dict[str, Any]) -> None:
    assert '<div class="verdict open">finetune</div>' in text
    speedup = whole["drafters"][0]["throughput"]["speedup"]
    value = f"{speedup['value']:.2f} [{speedup['low']:.2f}, {speedup['high']:.2f}]"
    assert value in text.replace("\N{NO-BREAK SPACE}", " ")
    assert re.findall(r"<figcaption>(.*?)<span>", text) == list(TITLES)
    assert text.count("<svg") == len(TITLES)


def test_every_tag_is_closed_and_every_id_is_one(text: str) -> None:
    read = Reader(text)
    assert read.open == []
    ids = [attrs["id"] for _, attrs in read.tags if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_it_asks_nobody_for_anything(text: str) -> None:
    for tag, attrs in Reader(text).tags:
        assert tag not in {"script", "link", "iframe", "img", "object", "embed", "image"}
        for name, value in attrs.items():
            if name in {"href", "xlink:href", "src", "action"}:
                assert str(value).startswith("#"), f"{tag} {name}={value}"
            assert not name.startswith("on"), f"{tag} {name}"
    assert not re.search(r"url\((?!#)|@import", text)


def test_drawings_are_themed_to_the_last_line(text: str) -> None:
    for drawing in re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL):
        assert not re.search(r"#[0-9a-fA-F]{6}\b", drawing), "a colour that no theme changes"
        assert "var(--one)" in drawing


def test_it_escapes_what_it_is_given() -> None:
    spoiled = entry(World(prompts=10), findings=[fault("vocab.stop-ids", severity="warning")])
    spoiled |= {"target": HOSTILE, "reasons": [HOSTILE], "next": [HOSTILE]}
    spoiled["checks"][0]["seen"] = HOSTILE
    spoiled["phases"][4]["what"] = HOSTILE
    spoiled["server"]["flags"] = {HOSTILE: HOSTILE}
    parts = spoiled["acceptance"]["by_workload"]
    parts[HOSTILE] = parts.pop("code")
    for tag, attrs in Reader(page(report_of(report(spoiled)))).tags:
        assert tag not in {"script", "img"}
        assert not any(name.startswith("on") for name in attrs)


@pytest.mark.parametrize("missing", ["acceptance", "throughput", "break_even", "server", "workload", "outlook"])
def test_what_was_not_measured_is_left_out(missing: str) -> None:
    bare = entry(World(prompts=10)) | {missing: None}
    assert "specprobe" in page(report_of(report(bare)))


def test_a_run_that_died_early_has_a_page() -> None:
    bare = entry(World(prompts=10), findings=[fault("vocab.absolute-ids")])
    for name in (
        "acceptance",
        "throughput",
        "break_even",
        "outlook",
        "losslessness",
        "server",
        "staging",
        "workload",
    ):
        bare[name] = None
    bare["phases"] = []
    shown = page(report_of(report(bare)))
    assert "broken" in shown
    assert "<svg" not in shown


def test_runs_of_the_past_are_drawn(tmp_path: Path) -> None:
    for day in (1, 2, 3):
        told = report(entry(World(accept=0.4, round_s=0.0225, seed=day)))
        told["created"] = f"2026-05-0{day}T00:00:00+00:00"
        remembered(told, folder=tmp_path)
    shown = page(report_of(told))
    assert "<figcaption>Runs of the same key<span>" in shown
    assert "over the median of 2 earlier runs" in shown


WITHOUT = """
import json, sys
sys.modules["matplotlib"] = None
from pytest_specprobe.cli import main
sys.exit(main(["report", sys.argv[1], "--format", "html"]))
"""


def test_without_the_extra_it_says_what_plots_need(whole: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(json.dumps(whole))
    run = subprocess.run([sys.executable, "-c", WITHOUT, tmp_path], capture_output=True, text=True, check=True)
    shown = run.stdout
    assert NEEDS.replace("'", "&#39;") in shown
    assert "<svg" not in shown
    assert '<div class="verdict open">finetune</div>' in shown


def test_the_command_writes_it(whole: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "report.json").write_text(json.dumps(whole))
    out = tmp_path / "page.html"
    assert main(["report", str(tmp_path), "--format", "html", "--output", str(out)]) == 0
    assert out.read_text().startswith("<!doctype html>")
    assert main(["report", str(tmp_path), "--format", "html", "--output", str(tmp_path / "no" / "page.html")]) == 2
    assert "cannot be written" in capsys.readouterr().err
