"""However a run is narrowed, no test of the gate passes without having been held against something."""

from pathlib import Path

import pytest

from pytest_specprobe.decide.verdict import Decision, decide
from pytest_specprobe.errors import GateFailed
from pytest_specprobe.findings import Finding
from pytest_specprobe.profiles import Gate
from pytest_specprobe.suite.checks import require_gate, require_verdict
from tests.support.jobs import Job, run_job
from tests.support.stand_in import Handler, Plain, serving, write_profile


def test_a_speed_is_held_against_its_gate(attached: tuple[str, ...], tmp_path: Path) -> None:
    write_profile(tmp_path, gate="min_speedup = 5.0")
    job = run_job(tmp_path, *attached, "specprobe/test_throughput.py")
    assert job.code == 1, job.output
    assert job.entries["attached"]["gate"] == "fail"
    assert "min_speedup" in job.output


def test_what_failed_fails_again_alone(attached: tuple[str, ...], tmp_path: Path) -> None:
    """``--lf`` runs a part of the tests, and must not turn a red run green."""
    write_profile(tmp_path, gate="min_speedup = 5.0")
    assert run_job(tmp_path, *attached, "-p", "cacheprovider").code == 1
    again = run_job(tmp_path, *attached, "-p", "cacheprovider", "--lf")
    assert "deselected" in again.output
    assert again.code == 1, again.output


def test_a_workload_below_its_own_minimum_fails_a_test_and_is_a_reason(
    attached: tuple[str, ...], tmp_path: Path
) -> None:
    write_profile(tmp_path, gate="min_accept_length_by_workload = { a = 2.9 }")
    job = run_job(tmp_path, *attached)
    failed = [str(case.get("name")) for case in job.junit.iter("testcase") if case.find("failure") is not None]
    assert (job.code, failed) == (1, ["test_acceptance[attached]"]), job.output
    entry = job.entries["attached"]
    assert any("min_accept_length_by_workload.a" in reason for reason in entry["reasons"])
    assert not any("ship it" in step for step in entry["next"])


def _fault(slug: str) -> Finding:
    return Finding(
        id=slug, severity="error", status="fail", culprit="engine", seen="x", expected="y", why="z", fix="mend it"
    )


@pytest.mark.parametrize(
    "decision",
    [
        pytest.param(decide(None, gate=Gate(), findings=[_fault("proof.algorithm")]), id="broken"),
        pytest.param(decide(None, gate=Gate(), findings=[_fault("measure.failed")]), id="invalid"),
        pytest.param(decide(None, gate=Gate()), id="not measured"),
    ],
)
def test_nothing_to_hold_against_the_gate_is_not_a_pass(decision: Decision) -> None:
    with pytest.raises(GateFailed, match="nothing to hold against it") as caught:
        require_gate(decision, "p1_margin")
    assert caught.value.culprit == ("engine" if decision.gate else "harness")
    with pytest.raises(GateFailed):
        require_verdict(decision)


def beside_plain(handler: type[Handler], folder: Path, option: str) -> Job:
    """Probe a stand-in of one's own, with the usual one without speculation as its baseline."""
    write_profile(folder)
    with serving(handler) as server, serving(Plain) as plain:
        attached = (f"--specprobe-server={server}", f"--specprobe-baseline={plain}")
        return run_job(folder, "--specprobe-drafter=attached", *attached, option)


class Halved(Handler):
    """Answers half as long as asked when several requests are in flight."""

    active = 0

    def generate(self, prompt: list[int], asked: dict[str, int]) -> None:
        Halved.active += 1
        try:
            if Halved.active > 1 and asked["ignore_eos"]:
                asked = asked | {"max_new_tokens": max(asked["max_new_tokens"] // 2, 8)}
            super().generate(prompt, asked)
        finally:
            Halved.active -= 1


def test_every_level_of_the_curve_is_checked(tmp_path: Path) -> None:
    job = beside_plain(Halved, tmp_path, "--specprobe-concurrency=1,4")
    assert job.code == 1, job.output
    wrong = [c for c in job.entries["attached"]["checks"] if c["status"] == "fail" and c["severity"] == "error"]
    assert [c["id"] for c in wrong] == ["measure.length"]
    assert "at 4 streams" in wrong[0]["seen"]


class Hot(Handler):
    """Samples other texts at a temperature, and counts prompt tokens of somebody else meanwhile."""

    prefilled = 0

    def do_GET(self) -> None:  # noqa: N802 - http.server's name
        if self.path == "/v1/loads":
            self.answer({"loads": [{"total_prefill_uncached_tokens": Hot.prefilled}]})
        else:
            super().do_GET()

    def generate(self, prompt: list[int], asked: dict[str, float]) -> None:
        Hot.prefilled += len(prompt) * (10 if asked["temperature"] else 1)
        super().generate([*prompt, 1000] if asked["temperature"] else prompt, asked)


def test_others_requests_in_the_sampled_pass_are_nothing_to_the_verdict(tmp_path: Path) -> None:
    job = beside_plain(Hot, tmp_path, "--specprobe-temperature=0.7")
    assert job.code == 0, job.output
    entry = job.entries["attached"]
    assert entry["sampled"] is not None
    assert entry["verdict"] is not None
