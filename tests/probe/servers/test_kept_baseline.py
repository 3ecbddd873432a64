"""A baseline is kept for later runs only if nothing says that it is not one."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_specprobe.findings import Finding, Severity
from pytest_specprobe.probe.run import ProbeRun


def finding(slug: str, severity: Severity = "error", status: Any = "fail") -> Finding:
    return Finding(id=slug, severity=severity, status=status, culprit="machine", seen="", expected="", why="", fix="")


@pytest.mark.parametrize(
    ("found", "kept"),
    [
        ([], True),
        ([finding("measure.foreign-requests", status="pass")], True),
        ([finding("measure.stall", "warning")], True),
        ([finding("proof.lossy-threshold")], True),  # of the drafter's server
        ([finding("measure.foreign-requests")], False),
        ([finding("measure.text-changed")], False),
        ([finding("measure.crowded-machine", "warning")], False),
        ([finding("measure.busy-machine", "warning")], False),
    ],
)
def test_an_invalid_or_busy_run_leaves_no_baseline(found: list[Finding], kept: bool) -> None:
    stored: list[object] = []
    throughput = object()
    run = SimpleNamespace(
        state=lambda: SimpleNamespace(findings=tuple(found)),
        servers=SimpleNamespace(baselines=SimpleNamespace(keep=stored.append)),
        _once=SimpleNamespace(peek=lambda _: (None, throughput)),
    )
    ProbeRun._keep_baseline(cast("ProbeRun", run))
    assert stored == ([throughput] if kept else [])
