"""Two runs in one directory at the same time: neither is judged by what the other's server says."""

import json

import pytest

from tests.support.held import stand_in

FIRST = """
import os, subprocess, sys


def test_first(specprobe_server, specprobe_run):
    before = specprobe_server.log_text()
    env = os.environ | {"FAKE_SGLANG": os.environ["OF_THE_SECOND"]}
    words = [sys.executable, "-m", "pytest", *sys.argv[1:-1], "test_second.py"]
    second = subprocess.run(words, env=env, capture_output=True, text=True)
    assert second.returncode == 1
    assert "ERROR: only of the second" in second.stdout
    specprobe_run.servers.prove_again()
    assert [check.id for check in specprobe_run.servers.proofs.all() if check.status == "fail"] == []
    assert specprobe_server.log_text() == before
"""


def test_each_reads_its_own_logs(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SGLANG", json.dumps({"pair": True, "log": "up\n"}))
    monkeypatch.setenv("OF_THE_SECOND", json.dumps({"pair": True, "log": "up\nERROR: only of the second\n"}))
    monkeypatch.setenv("SPECPROBE_STATE_DIR", str(pytester.path / "state"))
    pytester.makepyfile(test_first=FIRST, test_second="def test_second(specprobe_server): pass")
    python = stand_in(pytester.path / "python")
    result = pytester.runpytest_subprocess(
        "--specprobe-drafter=dense_mini", "--specprobe-device=cpu", f"--specprobe-python={python}", "test_first.py"
    )
    result.assert_outcomes(passed=1)
