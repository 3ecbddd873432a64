"""A probe of a server that someone else runs: dense pair, no baseline, a curve over concurrency."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_specprobe.profiles import Speculation
from pytest_specprobe.server.boot import Server, boot
from pytest_specprobe.server.spec import ServerSpec
from tests.support.jobs import run_job, write_short_workload

FIXTURES = Path(__file__).parents[2] / "fixtures"
CHAIN = Speculation(num_steps=2, eagle_topk=1, num_draft_tokens=3)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    spec = ServerSpec(
        model=str(FIXTURES / "mini_llama"), drafter=FIXTURES / "dense_mini", speculation=CHAIN, device="cpu"
    )
    with boot(spec, log_path=tmp_path_factory.mktemp("attach") / "server.log", timeout_s=300) as server:
        yield server


@pytest.fixture(autouse=True)
def _stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe does not see this tool's record of the server, or it would know it for one of its own."""
    monkeypatch.setenv("SPECPROBE_STATE_DIR", str(tmp_path / "state"))


def key_of(server: Server) -> str:
    """Return the random key that the owner of this server knows."""
    return "".join(key.reveal() for key in server.client._secrets)


def test_an_attached_server_is_measured_and_left_alone(
    running: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECPROBE_API_KEY", key_of(running))
    write_short_workload(tmp_path)
    job = run_job(
        tmp_path,
        "--specprobe-drafter=dense_mini",
        f"--specprobe-server={running.url}",
        "--specprobe-baseline=none",
        "--specprobe-concurrency=1,4",
        "--specprobe-workload=short.jsonl",
    )
    assert job.code == 10, job.output
    entry = job.entries["dense_mini"]
    assert entry["verdict"] == "undecided"
    assert entry["break_even"] is None
    assert entry["acceptance"]["accept_length"]["low"] > 1.3
    assert entry["acceptance"]["blind"] is None
    assert "no blind control" in job.output
    assert [point["concurrency"] for point in entry["throughput"]["curve"]] == [1, 4]
    skipped = {c["id"] for c in entry["checks"] if c["status"] == "skip"}
    assert "proof.simulated-acceptance" in skipped, "cannot be seen from outside"
    assert running.alive()
    assert key_of(running) not in job.output + (tmp_path / ".specprobe" / "report.json").read_text()


def test_other_settings_than_the_profiles_are_named(
    running: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECPROBE_API_KEY", key_of(running))
    (tmp_path / "specprobe.toml").write_text(
        "[drafters.dense_mini]\nspeculation = { num_steps = 3, eagle_topk = 1, num_draft_tokens = 4 }\n"
    )
    job = run_job(tmp_path, "--specprobe-drafter=dense_mini", f"--specprobe-server={running.url}")
    assert job.code == 1, job.output
    assert job.entries["dense_mini"]["verdict"] == "broken"
    assert "proof.settings" in job.output
    assert "culprit: launch-flags" in job.output


def test_a_wrong_key_ends_in_11(running: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECPROBE_API_KEY", "wrong")
    job = run_job(tmp_path, "--specprobe-drafter=dense_mini", f"--specprobe-server={running.url}", "-k", "boot")
    assert job.code == 11, job.output
    assert "SPECPROBE_API_KEY" in job.output
