"""pytest-benchmark reads tok/s off the token clock, and its own gate works on it."""

import json
from pathlib import Path

import pytest

from pytest_specprobe.measure.throughput import SpeedRow
from pytest_specprobe.probe.clock import TokenClock, seconds_per_token

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
