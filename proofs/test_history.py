"""From three runs of the mini family, the third with its server really slowed, the history flags the right one.

Slowed from outside: the drafter's server is stopped for three quarters of each tenth of a second, and nothing that
makes runs comparable has changed. Where others crowd the machine, a run says that it cannot tell, which is shown too.
``SPECPROBE_KEEP=DIR`` keeps the last run's report folder for docs/records.
"""

import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from pytest_specprobe.cli import main
from tests.support.jobs import Job, run_job, write_short_workload

DRAFTER = "scratch_k25_mini"
PROFILE = f"""
[drafters.{DRAFTER}]
blind = false
workload = "short.jsonl"
gate = {{ max_regression = 0.25, accept_verdicts = ["profitable", "verify-bound", "finetune", "undecided"] }}
"""


def servers() -> list[psutil.Process]:
    """The processes of the drafter's server that this proof's own pytest started."""
    found: dict[int, psutil.Process] = {}
    for process in psutil.Process().children(recursive=True):
        try:
            if "--speculative-algorithm" in process.cmdline():
                found |= {p.pid: p for p in (process, *process.children(recursive=True))}
        except psutil.Error:
            continue
    return list(found.values())


def is_up(report: Path) -> bool:
    try:
        phases = json.loads(report.read_text())["drafters"][0]["phases"]
    except (OSError, ValueError):
        return False
    return any(phase["name"] == "warm up" for phase in phases)


@contextmanager
def slowed(report: Path) -> Iterator[list[int]]:
    """From the drafter's warm-up on, let its server run a quarter of the time; give how many processes that are."""
    over, counts = threading.Event(), [0]

    def each(processes: list[psutil.Process], act: str) -> None:
        for process in processes:
            try:
                getattr(process, act)()
            except psutil.Error:
                continue

    def work() -> None:
        while not over.is_set() and not is_up(report):
            time.sleep(0.2)
        processes = servers()
        counts[0] = len(processes)
        while not over.is_set():
            each(processes, "suspend")
            time.sleep(0.075)
            each(processes, "resume")
            over.wait(0.025)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield counts
    finally:
        over.set()
        thread.join()


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> list[Job]:
    """Three runs in one folder, each with its own copy of what it left."""
    folder = tmp_path_factory.mktemp("history")
    (folder / "specprobe.toml").write_text(PROFILE)
    write_short_workload(folder)
    found = []
    for at in range(3):
        report = folder / ".specprobe" / "report.json"
        report.unlink(missing_ok=True)
        if at < 2:
            job = run_job(folder, f"--specprobe-drafter={DRAFTER}")
        else:
            with slowed(report) as counts:
                job = run_job(folder, f"--specprobe-drafter={DRAFTER}")
            assert counts[0] > 1, job.output
        kept = tmp_path_factory.mktemp(f"run{at}")
        shutil.copytree(folder / ".specprobe", kept / ".specprobe")
        found.append(Job(job.code, job.output, kept, job.seconds))
    if "SPECPROBE_KEEP" in os.environ:
        shutil.copytree(found[2].folder / ".specprobe", os.environ["SPECPROBE_KEEP"], dirs_exist_ok=True)
    return found


def test_the_first_run_has_no_past(jobs: list[Job]) -> None:
    entry = jobs[0].entries[DRAFTER]
    assert (jobs[0].code, entry["gate"]) == (0, "pass"), jobs[0].output
    assert entry["history"]["changes"] == []
    assert entry["history"]["kept"]


def test_the_second_run_is_not_flagged(jobs: list[Job]) -> None:
    """On a busy machine it may be that it cannot be told; flagged it must not be."""
    entry = jobs[1].entries[DRAFTER]
    assert entry["history"]["trend"] != "regressed", jobs[1].output
    assert jobs[1].code in {0, 10}, jobs[1].output
    assert len(entry["history"]["runs"]) == 1


def crowded(job: Job) -> bool:
    checks = job.entries[DRAFTER]["checks"]
    return any(c["id"] == "measure.crowded-machine" and c["status"] == "fail" for c in checks)


def test_the_slowed_run_is_flagged_and_fails_for_that_alone(jobs: list[Job]) -> None:
    entry = jobs[2].entries[DRAFTER]
    references = [job for job in jobs[:2] if job.entries[DRAFTER]["history"]["kept"] and not crowded(job)]
    if crowded(jobs[2]) or not references:
        assert (jobs[2].code, entry["history"]["trend"]) == (10, "cannot tell"), jobs[2].output
        pytest.skip("others crowd this machine, so that no time can be compared on it")
    assert entry["history"]["trend"] == "regressed", jobs[2].output
    assert jobs[2].code == 1, jobs[2].output
    assert [check["name"] for check in entry["gate_checks"] if check["result"] == "fail"] == ["max_regression"]
    failed = [line for line in jobs[2].output.splitlines() if line.startswith("FAILED ")]
    assert [line.partition(" - ")[0] for line in failed] == [
        f"FAILED specprobe/test_history.py::test_history[{DRAFTER}]"
    ]
    assert not entry["history"]["kept"]
    trends = {change["measure"]: change["trend"] for change in entry["history"]["changes"]}
    assert trends["accept_length"] == "steady", "it is as often right as before, only later"
    assert trends["speedup"] == "regressed", "its baseline was not slowed"


def test_the_history_and_the_reports_tell_the_same(jobs: list[Job], capsys: pytest.CaptureFixture[str]) -> None:
    first, _, third = (str(job.folder / ".specprobe") for job in jobs)
    told = "cannot tell" if crowded(jobs[0]) else jobs[2].entries[DRAFTER]["history"]["trend"]
    assert main(["compare", first, third, "--minimum", "0.25"]) == {"regressed": 1, "cannot tell": 10}[told]
    assert told.upper() in capsys.readouterr().out
    assert main(["history", third]) == 0
    table = capsys.readouterr().out
    assert table.count(jobs[0].entries[DRAFTER]["history"]["key"]) == 1, "one group"
    assert "regressed" not in table, "a run that failed is not kept"
