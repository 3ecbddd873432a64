"""A baseline by URL is proved like any other server: what is pasted there may be the drafter's own."""

import json
from pathlib import Path

from tests.support.jobs import run_job
from tests.support.stand_in import write_profile


def test_a_baseline_that_speculates_is_named(attached: tuple[str, ...], tmp_path: Path) -> None:
    write_profile(tmp_path)
    drafter, server, _ = attached
    job = run_job(tmp_path, drafter, server, server.replace("-server=", "-baseline="))
    assert job.code == 1, job.output
    entry = job.entries["attached"]
    assert entry["verdict"] == "broken"
    (wrong,) = [c for c in entry["checks"] if c["status"] == "fail" and c["severity"] == "error"]
    assert wrong["id"] == "proof.baseline-speculates"
    assert "start the baseline without --speculative-* flags" in job.output


def test_a_plain_baseline_is_proved(attached: tuple[str, ...], tmp_path: Path) -> None:
    write_profile(tmp_path)
    job = run_job(tmp_path, *attached)
    assert job.code == 0, job.output
    status = {c["id"]: c["status"] for c in json.loads(json.dumps(job.entries["attached"]["checks"]))}
    assert status["proof.baseline-speculates"] == "pass"
