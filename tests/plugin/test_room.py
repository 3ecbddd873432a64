"""Where the blind control does not fit beside the drafter's server and cannot be had, that server comes back."""

import json

import pytest

from tests.support.held import stand_in

# A GPU on which only one server fits: nothing else of the run asks what fits.
CROWDED = """
from pytest_specprobe.probe.plan import boots as planned_boots

planned_boots.fits = lambda spec, *, servers: False
"""
TEST = """
import pytest

from pytest_specprobe.errors import SpecprobeError


def test_it(specprobe_run, specprobe_server):
    before = specprobe_server.pid
    with pytest.raises(SpecprobeError, match="MESSAGE"), specprobe_run.servers.blind():
        pass
    assert specprobe_server.pid != before
    specprobe_server.client.flush()
    assert [server.pid for server in specprobe_run.servers._open if server.alive()] == [specprobe_server.pid]
"""


@pytest.mark.parametrize(
    ("plan", "message"),
    [({"exit": 3}, "exited with code 3"), ({"pair": True, "generate": ["no-rounds"]}, "proof.not-speculating")],
)
def test_a_blind_control_that_cannot_be_had_costs_nothing_else(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, plan: dict[str, object], message: str
) -> None:
    monkeypatch.setenv("FAKE_SGLANG", json.dumps({"pair": True}))
    monkeypatch.setenv("SPECPROBE_STATE_DIR", str(pytester.path / "state"))
    pytester.makeconftest(CROWDED)
    pytester.makepyfile(test_it=TEST.replace("MESSAGE", message))
    usual = stand_in(pytester.path / "usual")
    python = pytester.path / "python"
    other = f"export FAKE_SGLANG='{json.dumps(plan)}'"
    python.write_text(f'#!/bin/sh\ncase "$*" in *-blind-*) {other} ;; esac\nexec "{usual}" "$@"\n')
    python.chmod(0o755)
    result = pytester.runpytest_subprocess(
        "--specprobe-drafter=dense_mini", "--specprobe-device=cpu", f"--specprobe-python={python}", "test_it.py"
    )
    result.assert_outcomes(passed=1)
