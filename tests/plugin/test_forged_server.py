"""A program of another user takes the port of the server that is being booted: no key for it, and no verdict."""

import json

import pytest

from tests.support.forging import forging
from tests.support.held import stand_in


def test_the_run_ends_without_a_verdict(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SGLANG", json.dumps({"pair": True, "log": "up\n", "late": 5}))
    monkeypatch.setenv("SPECPROBE_STATE_DIR", str(pytester.path / "state"))
    python = stand_in(pytester.path / "python")
    with forging(pytester.path / "forger") as forger:
        result = pytester.runpytest_subprocess(
            "--specprobe-drafter=dense_mini", "--specprobe-device=cpu", f"--specprobe-python={python}"
        )
    assert result.ret == 11
    assert len(forger.ports) >= 3
    assert b"authorization" not in forger.heard.lower()
    result.stdout.fnmatch_lines(["*another process listens on the server's port: *forger.py*", "*culprit: machine*"])
    report = json.loads((pytester.path / ".specprobe" / "report.json").read_text())
    assert report["drafters"][0]["verdict"] is None
