"""The founding story on the whole workload, with what the README types: one drafter on two targets, two on one."""

import pytest

from tests.support.jobs import NAME, Job, gain, run_job

NAMES = (NAME, "scratch_k25_mini")
NATIVE = "aq_k2_mini_native"


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("founding-story")
    # of the native pair only acceptance is wanted
    (folder / "specprobe.toml").write_text(
        f'[drafters.{NATIVE}]\nblind = false\n[targets.mini_k2]\nbaseline = "none"\n'
    )
    return run_job(folder, f"--specprobe-drafter={','.join((*NAMES, NATIVE))}")


def test_the_drafter_moved_to_another_target_is_worth_fine_tuning(job: Job) -> None:
    entry = job.entries[NAME]
    assert entry["verdict"] in {"finetune", "undecided"}, job.output
    assert "finetune" in (entry["verdict"], *entry["candidates"]), job.output
    assert entry["acceptance"]["p1_margin"]["low"] > 0


@pytest.mark.parametrize(
    "better",
    [
        pytest.param("scratch_k25_mini", id="trained-on-this-target"),
        pytest.param(NATIVE, id="the-same-drafter-on-the-target-it-was-trained-on"),
    ],
)
def test_it_is_accepted_less_than(job: Job, better: str) -> None:
    found = gain(job.entries[better], job.entries[NAME])
    assert found.n >= 24
    assert found.low > 0


@pytest.mark.parametrize("name", NAMES)
def test_no_text_was_changed(job: Job, name: str) -> None:
    found = job.entries[name]["losslessness"]
    assert found["compared"] >= 24
    assert found["unexplained"] == 0, found["divergences"]


def test_every_target_boots_its_own_servers(job: Job) -> None:
    boots = [p["what"] for entry in job.report["drafters"] for p in entry["phases"] if p["name"] == "boot"]
    assert sorted(boots) == ["baseline", "blind control", "blind control", "drafter", "drafter", "drafter"]
