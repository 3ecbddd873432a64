"""``specprobe history`` and ``specprobe compare``: what a person sees of the past."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_specprobe.cli import main
from pytest_specprobe.report.store.history import NAME, Run, keep
from tests.support.simulated_history import World, another_key
from tests.support.simulated_reports import World as Probe
from tests.support.simulated_reports import entry, fault, report

SLOW, OLD = 7, 10


@pytest.fixture
def past(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Fourteen runs in ``.specprobe``: one slow, the last four on another SGLang."""
    monkeypatch.chdir(tmp_path)
    rng, world = np.random.default_rng(3), World(runs=0.012)
    runs = [world.run(rng, at, speed=0.85 if at == SLOW else 1) for at in range(14)]
    runs[OLD:] = [another_key(run, engine="SGLang 0.5.24") for run in runs[OLD:]]
    for run in runs:
        keep(run, path=tmp_path / ".specprobe" / NAME)
    return runs


def test_the_slow_run_is_flagged_and_no_other(past: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history"]) == 0
    lines = capsys.readouterr().out.splitlines()
    flagged = [line.split()[0] for line in lines if "regressed: tok/s" in line]
    assert flagged == [past[SLOW].id]


def test_another_key_is_shown_and_not_compared(past: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history"]) == 0
    shown = capsys.readouterr().out
    assert "not comparable with the group above: engine SGLang 0.5.23 -> SGLang 0.5.24" in shown
    assert shown.count("first of its key") == 2


def test_json_has_every_run_and_its_changes(past: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", ".specprobe", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [run["id"] for run in document["runs"]] == [run.id for run in past]
    slow = {c["measure"]: c["trend"] for c in document["runs"][SLOW]["changes"]}
    assert slow["tok_per_s"] == "regressed"
    assert slow["accept_length"] == "steady"
    assert "rows" not in document["runs"][0]


def test_few_rows_and_one_drafter(past: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "--last", "3", "--drafter", "aq"]) == 0
    assert "7 earlier runs are not shown" in capsys.readouterr().out
    assert main(["history", "--drafter", "nobody"]) == 0
    assert "no run is kept here yet" in capsys.readouterr().out


def test_an_empty_place_says_how_runs_get_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", str(tmp_path)]) == 0
    assert "kept when its gate passes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("pair", "code", "says"), [((0, SLOW), 1, "REGRESSED"), ((SLOW, 0), 0, "IMPROVED"), ((0, 1), 10, "CANNOT TELL")]
)
def test_compare_two_runs_of_the_history(
    past: list[Run], capsys: pytest.CaptureFixture[str], pair: tuple[int, int], code: int, says: str
) -> None:
    assert main(["compare", *(past[at].id for at in pair)]) == code
    assert capsys.readouterr().out.startswith(says)


def test_another_key_is_compared_only_where_it_is_named(past: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    a, b = past[0].id, past[OLD].id
    assert main(["compare", a, b]) == 2
    assert "--across engine" in capsys.readouterr().err
    assert main(["compare", a, b, "--across", "engine"]) in {0, 10}
    assert "differs in engine: SGLang 0.5.23 -> SGLang 0.5.24" in capsys.readouterr().out


def test_other_prompts_are_never_compared(past: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    foreign = another_key(past[0], workload="x" * 64)
    keep(foreign, path=Path(".specprobe") / NAME)
    assert main(["compare", past[0].id, foreign.id, "--across", "workload"]) == 2
    assert "same prompts" in capsys.readouterr().err


def written(folder: Path, name: str, *entries: dict[str, Any]) -> str:
    (folder / name).mkdir()
    (folder / name / "report.json").write_text(json.dumps(report(*entries)))
    return str(folder / name)


def test_compare_two_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = written(tmp_path, "before", entry(Probe(accept=0.7)))
    after = written(tmp_path, "after", entry(Probe(accept=0.7, speed=1.5, seed=1)))
    assert main(["compare", before, after, "--json"]) == 1
    changes = {c["measure"]: c for c in json.loads(capsys.readouterr().out)["changes"]}
    assert changes["tok_per_s"]["ratio"]["value"] == pytest.approx(1 / 1.5, rel=0.05)
    assert changes["speedup"]["trend"] != "regressed", "the baseline was as slow"


INVALID = asdict(fault("measure.foreign-requests"))


def interrupted(found: dict[str, Any]) -> None:
    found |= {"verdict": None, "gate": None}
    found["phases"].pop()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (
            lambda e: e.update(verdict="broken", gate="fail", checks=[asdict(fault("vocab.absolute-ids"))]),
            "is broken",
        ),
        (lambda e: e.update(verdict=None, gate="error", checks=[INVALID]), "measure.foreign-requests"),
        (lambda e: e.update(verdict=None, gate="error", reasons=["the server was lost"]), "the server was lost"),
        (lambda e: e.update(verdict=None, gate=None, invalid=["the baseline was lost"]), "the baseline was lost"),
        (lambda e: e.update(verdict=None, gate=None, checks=[INVALID]), "measure.foreign-requests"),
        (interrupted, "cut short"),
    ],
    ids=["broken", "invalid", "error", "lost", "narrowed-invalid", "interrupted"],
)
@pytest.mark.parametrize("first", [True, False])
def test_a_run_whose_numbers_say_nothing_is_not_compared(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    *,
    spoil: Callable[[dict[str, Any]], None],
    says: str,
    first: bool,
) -> None:
    found = entry(Probe(accept=0.7, speed=0.6, seed=1))
    spoil(found)
    pair = written(tmp_path, "bad", found), written(tmp_path, "good", entry(Probe(accept=0.7)))
    assert main(["compare", *(pair if first else pair[::-1])]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert f"{pair[0]}: aq_k2_mini" in told.err
    assert says in told.err


def test_a_narrowed_run_is_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    narrowed = entry(Probe(accept=0.7, speed=1.5, seed=1)) | {"verdict": None, "gate": None, "gate_checks": []}
    pair = written(tmp_path, "whole", entry(Probe(accept=0.7))), written(tmp_path, "narrowed", narrowed)
    assert main(["compare", *pair]) == 1
    assert capsys.readouterr().out.startswith("REGRESSED")


def test_which_drafter_must_be_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = written(tmp_path, "both", entry(Probe(), name="a"), entry(Probe(), name="b"))
    assert main(["compare", both, both]) == 2
    assert "holds a, b" in capsys.readouterr().err
    assert main(["compare", both, both, "--drafter", "b"]) in {0, 10}


def test_unusable_arguments(past: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "nothere", past[0].id]) == 2
    assert main(["compare", past[0].id, past[1].id, "--minimum", "2"]) == 2
    assert main(["history", "--last", "0"]) == 2
    assert capsys.readouterr().err.count("next:") == 3
