"""The main job, run once: two drafters on one target, and one of them on its own target, in one pytest."""

import pytest

from tests.job.jobs import NAMES, NATIVE, Job, run_job


@pytest.fixture(scope="session")
def main_job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("main-job")
    # One blind control is proof enough that it is made and used; of the native pair only acceptance is wanted.
    (folder / "specprobe.toml").write_text(
        "[drafters.scratch_k25_mini]\nblind = false\n"
        "[drafters.aq_k2_mini_native]\nblind = false\n"
        '[targets.mini_k2]\nbaseline = "none"\n'
    )
    drafters = ",".join((*NAMES, NATIVE))
    return run_job(folder, f"--specprobe-drafter={drafters}", "--benchmark-json=benchmark.json")
