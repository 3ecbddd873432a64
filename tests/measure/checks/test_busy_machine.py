import os
import subprocess
import sys
from dataclasses import replace

import psutil
import pytest

from pytest_specprobe.measure.checks.busy_machine import CpuTime, check_load

BURN = (
    "import time; end = time.process_time() + {0}\nwhile time.process_time() < end: pass\nprint(flush=True); input()"
)


def test_our_own_servers_do_not_count_as_others() -> None:
    """A child burns half a second: seen as ours when named, as another's when not."""
    child = subprocess.Popen(
        [sys.executable, "-c", BURN.format(0.5)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        before = CpuTime.now([child.pid])
        stranger = CpuTime.now([])
        child.stdout.readline()
        ours = CpuTime.now([child.pid]).own_s - before.own_s
        theirs = CpuTime.now([]).own_s - stranger.own_s
    finally:
        child.communicate("\n")
    assert ours - theirs == pytest.approx(0.5, abs=0.2)


@pytest.mark.parametrize(
    ("others", "status", "name"), [(0.05, "pass", "busy"), (0.15, "fail", "busy"), (0.45, "fail", "crowded")]
)
def test_the_share_is_of_all_cores(others: float, status: str, name: str) -> None:
    cores = psutil.cpu_count() or 1
    before = CpuTime(machine_s=1000.0, own_s=10.0, clock_s=0.0)
    after = replace(
        before, machine_s=1000.0 + 10 * cores * (0.4 + others), own_s=10.0 + 10 * cores * 0.4, clock_s=10.0
    )
    finding = check_load((before, after))
    assert finding.status == status
    assert finding.id == f"measure.{name}-machine"
    assert f"{others:.0%}" in finding.seen
    assert finding.severity == "warning"


def test_a_process_that_is_gone_counts_nothing() -> None:
    assert CpuTime.now([2**22 + os.getpid()]).own_s < CpuTime.now([os.getpid()]).own_s
