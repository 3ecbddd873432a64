"""Does it pay? Decode rate against the same target without speculation, and the verdict."""

from pytest_benchmark.fixture import BenchmarkFixture

from pytest_specprobe.findings import require
from pytest_specprobe.measure.throughput import Throughput
from pytest_specprobe.probe.clock import seconds_per_token
from pytest_specprobe.probe.run import ProbeRun
from pytest_specprobe.suite.checks import require_gate, require_verdict


def test_throughput(
    specprobe_run: ProbeRun, specprobe_throughput: Throughput, specprobe_streams: int, benchmark: BenchmarkFixture
) -> None:
    """The recorded seconds per token of each prompt, as pytest-benchmark rounds: OPS is tok/s of one stream."""
    rows = specprobe_run.throughput(streams=specprobe_streams).prompts
    shares = iter(seconds_per_token(rows))
    benchmark.extra_info.update(specprobe_run.benchmark_info(streams=specprobe_streams))
    benchmark.pedantic(  # type: ignore[no-untyped-call]  # pytest-benchmark ships no types
        lambda: specprobe_run.clock.advance(next(shares)), rounds=len(rows), iterations=1
    )
    specprobe_run.curve()
    specprobe_run.sweep()
    require(specprobe_run.validity())
    for name in ("min_tok_per_s", "min_speedup"):
        require_gate(specprobe_run.decision(), name)


def test_verdict(specprobe_run: ProbeRun, specprobe_throughput: Throughput) -> None:
    """The verdict is one that the profile accepts."""
    require_verdict(specprobe_run.decision())
