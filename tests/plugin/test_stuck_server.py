"""Servers that do not end when they should: the others still do, and what was measured is decided and shown."""

import json

import pytest

from pytest_specprobe.server.process import supervisor
from tests.support.held import stand_in

# A process that waits in the kernel cannot be made here; the error is raised where it would be, after a true end.
STUCK = """
from pytest_specprobe.errors import ServerError
from pytest_specprobe.server.process.handle import Supervised

stop = Supervised.stop


def stays(self):
    stop(self)
    raise ServerError(f"processes [{self.pid}] of the server would not end", culprit="machine", fix="see nvidia-smi")


Supervised.stop = stays
"""
TEST = """
def test_it(specprobe_run):
    specprobe_run.servers.baseline()
    specprobe_run.servers.server()
"""


def test_the_run_ends_as_any_other_and_says_it(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    boots = pytester.path / "boots"
    monkeypatch.setenv("FAKE_SGLANG", json.dumps({"pair": True, "log": "up\n", "count": str(boots)}))
    monkeypatch.setenv("SPECPROBE_STATE_DIR", str(pytester.path / "state"))
    pytester.makeconftest(STUCK)
    pytester.makepyfile(test_it=TEST)
    python = stand_in(pytester.path / "python")
    result = pytester.runpytest_subprocess(
        "--specprobe-drafter=dense_mini", "--specprobe-device=cpu", f"--specprobe-python={python}", "test_it.py"
    )
    assert result.ret == 11
    result.assert_outcomes(passed=1)
    pids = [int(line) for line in boots.read_text().split()]
    assert len(pids) == 2
    for pid in pids:
        result.stdout.fnmatch_lines([f"*processes ?{pid}? of the server would not end*"])
        found = supervisor.read_process(pid)
        assert found is None or found.zombie
    result.stdout.fnmatch_lines(["dense_mini on mini_llama: *", "  report *report.json"])
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
