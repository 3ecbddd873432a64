"""The main job, run once: two drafters on one target, in one pytest."""

import pytest

from tests.job.jobs import NAMES, Job, run_job, write_short_workload


@pytest.fixture(scope="session")
def main_job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("main-job")
    write_short_workload(folder)
    # One blind control is proof enough that it is made and used.
    (folder / "specprobe.toml").write_text(
        '[drafters.aq_k2_mini]\nworkload = "short.jsonl"\n'
        '[drafters.scratch_k25_mini]\nworkload = "short.jsonl"\nblind = false\n'
    )
    return run_job(folder, f"--specprobe-drafter={','.join(NAMES)}", "--benchmark-json=benchmark.json")
