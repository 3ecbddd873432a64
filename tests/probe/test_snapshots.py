"""The report on disk follows a run phase by phase, and what it costs does not grow with the phases."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from pytest_specprobe.probe import session as session_module
from pytest_specprobe.probe.measured import Measured
from pytest_specprobe.probe.report_entry import entry
from pytest_specprobe.probe.servers.probe_servers import ProbeServers
from pytest_specprobe.probe.session import ProbeSession
from pytest_specprobe.report import file as report_file
from pytest_specprobe.report.model.report import Report
from tests.characterization.adapter_probe import Script, probe
from tests.characterization.world import World

SCRIPT = Script(
    world=World(prompts=9, verify_s=0.008),
    steps=("acceptance", "throughput", "curve", "sweep"),
    options={"blind": True, "concurrency": (1, 4), "sweep": ("1/1/2", "3/1/4", "2/4/8")},
)


def counted(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[int]:
    """Count the calls of a method, by one entry each."""
    calls: list[int] = []
    real: Callable[..., Any] = getattr(owner, name)

    def count(*given: Any, **more: Any) -> Any:
        calls.append(1)
        return real(*given, **more)

    monkeypatch.setattr(owner, name, count)
    return calls


def test_log_and_texts_are_looked_through_once_per_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log may be 64 MiB; a run has dozens of phases, each with two snapshots, and tests that ask as well."""
    logs, checks = (counted(monkeypatch, owner, name) for owner, name in (
        (ProbeServers, "log_text"), (Measured, "validity"),
    ))  # fmt: skip
    phases = probe(SCRIPT, tmp_path, snapshots=True)["report"]["drafters"][0]["phases"]
    passes = [phase for phase in phases if phase["name"] == "probe"]
    assert len(phases) > 20
    assert 1 <= len(logs) <= len(passes)
    # a step within a pass (the texts, then what the server counted) may be seen by a snapshot of its own
    assert len(checks) <= 2 * len(passes) + 4


def written(tmp_path: Path) -> list[dict[str, Any]]:
    snapshots: list[dict[str, Any]] = []
    real = report_file.write

    def keep(report: Report, *, folder: Path) -> Path:
        snapshots.append(report.document())
        return real(report, folder=folder)

    with mock.patch("pytest_specprobe.report.file.write", keep):
        probe(SCRIPT, tmp_path, snapshots=True)
    return snapshots


def test_a_killed_run_leaves_what_it_knew(tmp_path: Path) -> None:
    """Each phase is on disk as soon as it begins, beside all that was measured before."""
    snapshots = [item["drafters"][0] for item in written(tmp_path)]
    begun = [entry for entry in snapshots if entry["phases"] and entry["phases"][-1]["status"] == "running"]
    last = snapshots[-1]
    assert [entry["phases"][-1]["what"] for entry in begun] == [phase["what"] for phase in last["phases"]]
    sweep = next(entry for entry in begun if "in one boot" in entry["phases"][-1]["what"])
    assert sweep["acceptance"] == last["acceptance"]
    assert sweep["throughput"]["tok_per_s"] == last["throughput"]["tok_per_s"]
    assert {check["id"] for check in sweep["checks"]} >= {"measure.busy-machine", "measure.text-changed"}


def test_a_report_that_breaks_its_schema_is_a_problem_and_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was measured is written all the same; the run cannot end green, since a problem is exit code 11."""
    monkeypatch.setattr(session_module, "entry", lambda *given: entry(*given).model_copy(update={"target": 5}))
    problems: list[str] = []
    finish = ProbeSession.finish

    def finished(self: ProbeSession) -> Any:
        entries = finish(self)
        assert self.report is None
        problems.extend(map(str, self.problems))
        return entries

    monkeypatch.setattr(ProbeSession, "finish", finished)
    written = probe(Script(world=SCRIPT.world, steps=("acceptance",)), tmp_path)["report"]["drafters"][0]
    assert written["target"] == 5
    assert written["acceptance"] is not None
    assert len(problems) == 1
    assert "breaks its own schema" in problems[0]
    assert "culprit: harness" in problems[0]
