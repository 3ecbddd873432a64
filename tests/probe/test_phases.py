"""The phases add up to the time that passed."""

import time

import pytest

from pytest_specprobe.probe.phases import PhaseLog


def test_a_phase_within_another_takes_its_seconds_out_of_it() -> None:
    log = PhaseLog("d", say=lambda _: None)
    start = time.monotonic()
    with log.phase("probe", "turns"):
        with log.phase("boot", "again"):
            time.sleep(0.05)
        time.sleep(0.02)
    took = time.monotonic() - start
    outer, inner = log.phases
    assert inner.seconds >= 0.05
    assert outer.seconds + inner.seconds == pytest.approx(took, abs=0.005)
    assert outer.seconds < took - 0.05 + 0.005
