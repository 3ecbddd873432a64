"""The main job, run once, on the prompts with short answers; with several drafters: proofs/test_founding_story.py."""

import pytest

from tests.support.jobs import NAME, Job, run_job, write_short_workload


@pytest.fixture(scope="session")
def main_job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("main-job")
    write_short_workload(folder)
    (folder / "specprobe.toml").write_text(f'[drafters.{NAME}]\nworkload = "short.jsonl"\n')
    return run_job(folder, f"--specprobe-drafter={NAME}", "--benchmark-json=benchmark.json")
