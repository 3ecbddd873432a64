"""A sweep in every rendering: a row per setting, the best one, and how far it is to be trusted."""

from typing import Any

import jsonschema
import pytest

from pytest_specprobe.report.read import report_of
from pytest_specprobe.report.render.html import page
from pytest_specprobe.report.render.markdown import markdown
from pytest_specprobe.report.render.numbers import numbers
from pytest_specprobe.report.render.plots import plots
from pytest_specprobe.report.render.terminal import summary
from tests.support.report_schema import SCHEMA, closed, problems
from tests.support.simulated_reports import World, report, swept


@pytest.fixture(scope="module")
def entry() -> dict[str, Any]:
    return swept(World(accept=0.55))


@pytest.fixture(scope="module")
def slower() -> dict[str, Any]:
    """The own setting runs at 0.8 of its speed on the shared boot."""
    return swept(World(accept=0.55), alone_s=0.016)


def rows(entry: dict[str, Any]) -> dict[str, str]:
    return {row.label: f"{row.value} ({row.how})" for row in numbers(report_of(report(entry)).drafters[0])}


def test_the_schema_describes_it_whole(entry: dict[str, Any], slower: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert problems(report(entry), closed(SCHEMA)) == []
    assert problems(report(slower), closed(SCHEMA)) == []


def test_each_setting_has_its_numbers_its_verdict_and_how_it_was_measured(entry: dict[str, Any]) -> None:
    found = rows(entry)
    assert "x over 2/1/3" in found["at 1/1/2"]
    assert "pinned on one boot of all chains" in found["at 2/1/3"]
    assert "of at most 4, break-even" in found["at 3/1/4"]
    assert found["at 2/4/8"] == "not measured (skipped; not run: the server died in phase weights)"
    assert found["at 2/1/3"].startswith(entry["sweep"][0]["verdict"])


def test_the_best_one_is_named_with_its_interval_and_its_protection(entry: dict[str, Any]) -> None:
    found, best = rows(entry), entry["sweep_best"]
    assert best["setting"] == "1/1/2"
    assert "x over the profile's own 2/1/3, surely faster" in found["best setting"]
    assert "each setting's interval at 98.75%, so that all 4 hold at once with 95 %" in found["best setting"]
    unsure = entry | {"sweep_best": best | {"surely_better": False}}
    assert "not surely faster" in rows(unsure)["best setting"]
    own = entry | {"sweep_best": best | {"setting": "2/1/3", "over_own": None}}
    assert "the profile's own: no other setting was faster" in rows(own)["best setting"]
    alone = entry | {"sweep_best": best | {"fallback": "the server refuses"}}
    assert "one boot per setting, since the server refuses" in rows(alone)["best setting"]


def test_times_of_a_slower_shared_boot_are_shown_nowhere(entry: dict[str, Any], slower: dict[str, Any]) -> None:
    found = rows(slower)
    assert "not shown to be the same" in found["shared boot"]
    for name in ("1/1/2", "3/1/4"):
        assert found[f"at {name}"].startswith("accept length ")
        assert "its times are not compared" in found[f"at {name}"]
        assert f"--specprobe-sweep={name} alone boots it on its own" in found[f"at {name}"]
        assert "tok/s" not in found[f"at {name}"]
    assert "tok/s" in found["at 2/1/3"]
    assert found["best setting"].startswith(
        "2/1/3, the profile's own: no other setting was faster of those whose times can be compared; 2 cannot"
    )
    assert "Settings of the sweep" not in {plot.title for plot in plots(report_of(report(slower)).drafters[0])}
    shown = rows(entry)
    assert "on a boot of its own: the same speed" in shown["shared boot"]
    assert "not shown" not in shown["at 1/1/2"]


def test_a_lower_estimate_is_called_one(entry: dict[str, Any]) -> None:
    bracket = {
        "num_steps": 1, "bracket": True, "accept_length_low": 1.4, "accept_length_high": 1.5, "tok_per_s_low": None,
        "tok_per_s_high": None, "speedup_low": 0.9, "speedup_high": 1.2,
    }  # fmt: skip
    row = entry["sweep"][3] | {"how": "lower-estimate", "bracket": bracket, "note": "not run: attached"}
    found = rows(entry | {"sweep": [row]})["at 2/4/8"]
    assert found == "speedup 0.90 to 1.20 x, accept length 1.40 to 1.50 (lower estimate; not run: attached)"


def test_terminal_markdown_and_page_show_every_row(entry: dict[str, Any]) -> None:
    whole = report_of(report(entry))
    for text in ("\n".join(summary(whole)), "\n".join(markdown(whole)), page(whole)):
        for label in ("at 2/1/3", "at 1/1/2", "at 3/1/4", "at 2/4/8", "shared boot", "best setting"):
            assert label in text
    drawn = {plot.title: plot.svg for plot in plots(whole.drafters[0])}["Settings of the sweep"]
    assert "1/1/2 (fastest)" in drawn
    assert "2/1/3 (own)" in drawn
    assert "2/4/8" not in drawn
