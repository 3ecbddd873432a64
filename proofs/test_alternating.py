"""Two servers that are never up together, for real: the pass, its figures, and a client that outlives the swap."""

import json
from pathlib import Path

import pytest

from tests.support.jobs import Job, run_job

# A user's own test in the same session: the drafter's server was ended and came back while its client was held.
USERS_TEST = """
import psutil


def test_the_client_outlives_the_swap(specprobe_client, specprobe_server, specprobe_throughput, specprobe_run):
    first = specprobe_server.pid
    assert specprobe_client.server_info().version
    assert specprobe_server.alive()
    assert psutil.pid_exists(first)
    running = [p for p in specprobe_run.phases.phases if p.name == "boot"]
    assert [p.what for p in running] == ["drafter", "baseline", "drafter again"]
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("alternating")
    (folder / "test_user.py").write_text(USERS_TEST)
    rows = [
        {"id": f"q{i}", "messages": [{"role": "user", "content": f"Explain function number {i} of a small module."}]}
        for i in range(6)
    ]
    (folder / "few.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return run_job(
        folder,
        "--specprobe-drafter=aq_k2_mini",
        "--specprobe-baseline=alternating",
        "--no-specprobe-blind",
        "--specprobe-workload=few.jsonl",
        "test_user.py",
    )


def test_the_pass_is_paired_by_prompt_and_says_how_it_was_measured(job: Job) -> None:
    speed = job.entries["aq_k2_mini"]["throughput"]
    assert speed["baseline_source"] == "alternating", job.output
    assert all(row["requests"] == 2 and row["baseline_tokens"] for row in speed["prompts"])
    assert speed["speedup"]["low"] < speed["speedup"]["high"]
    checks = {check["id"] for check in job.entries["aq_k2_mini"]["checks"]}
    assert "measure.boots-differ" in checks or "1 passed" in job.output


def test_a_users_own_test_goes_on_with_its_client(job: Job) -> None:
    assert "1 passed" in job.output, job.output


def test_each_boot_has_a_log_of_its_own(job: Job) -> None:
    logs = {path.name for path in Path(job.folder / ".specprobe" / "logs").glob("*/*.log")}
    assert logs == {f"aq_k2_mini-{what}.log" for what in ("drafter", "baseline", "drafter-again")}
