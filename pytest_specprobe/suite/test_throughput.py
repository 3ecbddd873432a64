"""Does it pay? Decode rate against the same target without speculation, and the verdict."""

from pytest_benchmark.fixture import BenchmarkFixture

from pytest_specprobe.findings import require
from pytest_specprobe.measure.throughput import Throughput
from pytest_specprobe.probe.clock import seconds_per_token
from pytest_specprobe.probe.run import ProbeRun
from pytest_specprobe.suite.checks import require_gate, require_verdict


def test_throughput(specprobe_run: ProbeRun, specprobe_throughput: Throughput, benchmark: BenchmarkFixture) -> None:
    """The recorded seconds per token of each prompt, as pytest-benchmark rounds: OPS is tok/s."""
    shares = iter(seconds_per_token(specprobe_throughput.prompts))
    benchmark.extra_info.update(specprobe_run.benchmark_info())
    benchmark.pedantic(  # type: ignore[no-untyped-call]  # pytest-benchmark ships no types
        lambda: specprobe_run.clock.advance(next(shares)), rounds=len(specprobe_throughput.prompts), iterations=1
    )
    specprobe_run.curve()
    specprobe_run.sweep()
    require(specprobe_run.measured().validity())
    for name in ("min_tok_per_s", "min_speedup"):
        require_gate(specprobe_run.decision(), name)


def test_verdict(specprobe_run: ProbeRun, specprobe_throughput: Throughput) -> None:
    """The verdict is one that the profile accepts."""
    require_verdict(specprobe_run.decision())
