"""pytest-benchmark reads tok/s off the token clock, and its own gate works on it."""

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_specprobe.measure.throughput import SpeedRow
from pytest_specprobe.probe.clock import TokenClock, seconds_per_token
from tests.support.stand_in import write_profile

INNER = """
import pytest
from pytest_specprobe.probe.clock import TokenClock
clock = TokenClock()

@pytest.mark.benchmark(group="tok/s", timer=clock)
def test_speed(benchmark):
    shares = iter({shares})
    benchmark.pedantic(lambda: clock.advance(next(shares)), rounds={rounds}, iterations=1)
"""


def row(name: str, tokens: int, decode_s: float) -> SpeedRow:
    return SpeedRow(
        id=name,
        workload="code",
        requests=1,
        tokens=tokens,
        decode_s=decode_s,
        total_s=decode_s,
        rounds=tokens,
        accepted=0,
        baseline_tokens=None,
        baseline_decode_s=None,
        baseline_total_s=None,
    )


ROWS = (row("a", 100, 1.5), row("b", 20, 0.5), row("c", 60, 1.0))
TOK_PER_S = 180 / 3.0


def write(folder: Path, shares: tuple[float, ...]) -> None:
    (folder / "test_speed.py").write_text(INNER.format(shares=shares, rounds=len(shares)))


def test_the_mean_of_the_shares_is_seconds_per_token_over_all_prompts() -> None:
    shares = seconds_per_token(ROWS)
    assert len(shares) / sum(shares) == pytest.approx(TOK_PER_S)


def test_the_clock_stands_still_unless_told() -> None:
    clock = TokenClock()
    assert clock() == clock() == 0.0
    clock.advance(0.25)
    assert clock() == 0.25


def test_ops_is_tok_per_s_and_a_slower_run_fails_the_compare(pytester: pytest.Pytester) -> None:
    shares = seconds_per_token(ROWS)
    write(pytester.path, shares)
    first = pytester.runpytest_subprocess("--benchmark-save=first", "--benchmark-json=out.json")
    assert first.ret == 0
    stats = json.loads((pytester.path / "out.json").read_text())["benchmarks"][0]["stats"]
    assert stats["ops"] == pytest.approx(TOK_PER_S)
    gate = ("--benchmark-compare=0001", "--benchmark-compare-fail=mean:10%")
    assert pytester.runpytest_subprocess(*gate).ret == 0
    write(pytester.path, tuple(1.2 * share for share in shares))
    assert pytester.runpytest_subprocess(*gate).ret == 1


# --- whole runs, on the stand-in for two servers ------------------------------------------------------------------

GATE = ("--benchmark-compare=0001", "--benchmark-compare-fail=mean:10%")
SPEED = "specprobe/test_throughput.py::test_throughput[attached-few-{}]"


def entry(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / ".specprobe" / "report.json").read_text())["drafters"][0]
    return found


def rewind(folder: Path, faster: float) -> None:
    """Make the stored run one that was ``faster`` times as fast as it was."""
    path = next((folder / ".benchmarks").rglob("*.json"))
    stored = json.loads(path.read_text())
    for bench in stored["benchmarks"]:
        bench["stats"] |= {key: bench["stats"][key] / faster for key in ("min", "max", "mean", "median")}
    path.write_text(json.dumps(stored))


def test_each_concurrency_is_a_benchmark_and_two_runs_compare(
    pytester: pytest.Pytester, attached: tuple[str, ...]
) -> None:
    write_profile(pytester.path)
    first = pytester.runpytest_subprocess(
        *attached, "--specprobe-concurrency=1,2", "--benchmark-save=first", "--benchmark-json=out.json"
    )
    assert first.ret == 0
    found = json.loads((pytester.path / "out.json").read_text())
    points = {
        point["concurrency"]: point["tok_per_s"]["value"] for point in entry(pytester.path)["throughput"]["curve"]
    }
    assert {bench["fullname"]: bench["stats"]["ops"] for bench in found["benchmarks"]} == {
        SPEED.format(streams): pytest.approx(speed) for streams, speed in points.items()
    }
    assert [bench["extra_info"]["concurrency"] for bench in found["benchmarks"]] == [1, 2]
    assert all("tok/s of one stream" in bench["extra_info"]["unit"] for bench in found["benchmarks"])
    told = found["machine_info"]
    assert told["sglang"] == {"attached": "0.5.23"}
    assert told["torch"] == {}, "another's environment is not asked"
    assert told["cpu"]
    assert told["gpus"] == []
    assert told["gpu_driver"] is None
    rewind(pytester.path, 0.5)
    assert pytester.runpytest_subprocess(*attached, *GATE).ret == 0
    rewind(pytester.path, 4.0)
    slower = pytester.runpytest_subprocess(*attached, *GATE)
    assert slower.ret == 1
    slower.stdout.fnmatch_lines(["*attached on mini_k25: *"])
    slower.stderr.fnmatch_lines(["*Performance has regressed*"])


def test_another_workload_or_concurrency_is_another_benchmark(pytester: pytest.Pytester) -> None:
    write_profile(pytester.path)
    pytester.mkdir("sets")
    (pytester.path / "few.jsonl").rename(pytester.path / "sets" / "own.jsonl")
    result = pytester.runpytest_inprocess(
        "--specprobe-drafter=aq_k2,aq_k2_mini",
        "--specprobe-workload=sets/own.jsonl",
        "--specprobe-concurrency=4,1,4",
        "specprobe/test_throughput.py::test_throughput", "--collect-only", "-q",
    )  # fmt: skip
    ids = [line.partition("[")[2] for line in result.outlines if "::" in line]
    assert sorted(ids) == ["aq_k2-own-1]", "aq_k2-own-4]", "aq_k2_mini-own-1]", "aq_k2_mini-own-4]"]
    assert [name.partition("-")[0] for name in ids] == ["aq_k2", "aq_k2", "aq_k2_mini", "aq_k2_mini"]


@pytest.mark.parametrize("switch", ["--benchmark-disable", "--benchmark-skip", "-n2"])
def test_without_a_stored_benchmark_there_is_still_a_number(
    pytester: pytest.Pytester, attached: tuple[str, ...], switch: str
) -> None:
    """Workers of pytest-xdist would each measure the same server at once, and none would own the report."""
    write_profile(pytester.path)
    result = pytester.runpytest_inprocess(*attached, switch, "--junitxml=junit.xml")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["attached on mini_k25: *", "*tok/s   *of one stream*"])
    assert entry(pytester.path)["throughput"]["tok_per_s"]["value"] > 0
    assert (switch == "-n2") == ("no pytest-xdist workers" in result.stdout.str())


@pytest.mark.parametrize(("least", "code"), [(0.5, 0), (5.0, 1)])
def test_a_run_of_benchmarks_only_is_held_against_the_gate(
    pytester: pytest.Pytester, attached: tuple[str, ...], least: float, code: int
) -> None:
    write_profile(pytester.path, gate=f"min_speedup = {least}")
    run = pytester.runpytest_inprocess(*attached, "--benchmark-only")
    assert run.ret == code
    run.stdout.fnmatch_lines(["*gate *passed*" if code == 0 else "*gate *failed*"])


CODSPEED = """
class Enabled:
    is_codspeed_enabled = True

def pytest_configure(config):
    config.pluginmanager.register(Enabled())
"""


@pytest.mark.parametrize(
    ("switches", "says"),
    [
        (["-p", "no:benchmark"], "*pip install pytest-benchmark, and drop -p no:benchmark*"),
        (["--benchmark-disable", "--benchmark-compare-fail=mean:10%"], "*compares nothing with --benchmark-disable*"),
        (["--benchmark-skip", "--benchmark-compare-fail=mean:10%"], "*compares nothing with --benchmark-disable*"),
        (["-p", "codspeeds"], "*without --codspeed and CODSPEED_ENV*"),
    ],
)
def test_what_would_leave_the_number_out_is_refused(
    pytester: pytest.Pytester, switches: list[str], says: str
) -> None:
    pytester.makepyfile(codspeeds=CODSPEED)
    pytester.syspathinsert()
    result = pytester.runpytest_inprocess("--specprobe-drafter=aq_k2", *switches)
    assert result.ret == 4
    result.stderr.fnmatch_lines([says])
