"""The main job, run once: both mini drafters in one pytest."""

import pytest

from tests.job.jobs import NAMES, Job, run_job


@pytest.fixture(scope="session")
def main_job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("main-job")
    # one blind control is proof enough that it is made and used, and a boot less
    (folder / "specprobe.toml").write_text("[drafters.scratch_k25_mini]\nblind = false\n")
    return run_job(folder, f"--specprobe-drafter={','.join(NAMES)}", "--benchmark-json=benchmark.json")
