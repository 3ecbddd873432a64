"""Throughput passes of one probe: the drafter's server, interleaved or in turn with its baseline."""

from collections.abc import Sequence
from contextlib import ExitStack

from pytest_specprobe.findings import Finding
from pytest_specprobe.measure.apart import check_apart
from pytest_specprobe.measure.passes import ThroughputRuns, apart_pass, natural_lengths, throughput_pass
from pytest_specprobe.measure.records import Generation
from pytest_specprobe.measure.texts import dropped_prompts
from pytest_specprobe.measure.throughput import BaselineSource, Throughput, measure_throughput
from pytest_specprobe.probe.baselines import Baseline
from pytest_specprobe.probe.phases import PhaseLog, narrator
from pytest_specprobe.probe.servers import ProbeServers
from pytest_specprobe.probe.watch import Watch
from pytest_specprobe.server.load import CpuTime, check_load


class Timing:
    """Runs throughput passes; ``load`` gathers what each says of the machine it ran on."""

    def __init__(self, servers: ProbeServers, *, phases: PhaseLog, watch: Watch) -> None:
        self._servers = servers
        self._phases = phases
        self._watch = watch
        self.load: list[Finding] = []

    def measure(self, texts: Sequence[Generation], *, streams: int) -> tuple[ThroughputRuns, Throughput]:
        """Measure the decode rate at this many requests in flight, each as long as its text in the acceptance pass.

        :raises MeasurementError: if a request fails; the measurement is then invalid.
        """
        base = self._servers.baseline()
        runs = self._in_turn(texts, streams) if base.apart else self._interleaved(base, texts, streams)
        self._servers.prove_again()
        return runs, _rates(runs, base, texts, streams=streams)

    def _interleaved(self, base: Baseline, texts: Sequence[Generation], streams: int) -> ThroughputRuns:
        server = self._servers.server()
        what = "throughput" if streams == 1 else f"throughput, {streams} streams"
        if base.server is not None:
            what += ", interleaved with the baseline"
        with self._phases.phase("probe", what) as say, ExitStack() as watches:
            client = watches.enter_context(self._watch.over(server, "drafter"))
            plain = None
            if base.server is not None:
                plain = watches.enter_context(self._watch.over(base.server, "baseline"))
            pids = [s.pid for s in (server, base.server) if s is not None and s.pid is not None]
            before = CpuTime.now(pids)
            runs = throughput_pass(
                client,
                plain,
                self._servers.prompts(),
                new_tokens=natural_lengths(texts),
                repeats=1,
                concurrency=streams,
                progress=narrator(what, say),
            )
        if server.vouched and server.device == "cpu":
            self.load.append(check_load(before, CpuTime.now(pids)))
        return runs

    def _in_turn(self, texts: Sequence[Generation], streams: int) -> ThroughputRuns:
        """Measure two servers that are never up together; the boots between the turns are phases of their own."""
        drafter, baseline = self._servers.relay().seats()
        what = f"throughput, {streams} stream{'s' * (streams > 1)}, in turn with the baseline"
        with self._phases.phase("probe", what) as say:
            runs = apart_pass(
                drafter,
                baseline,
                self._servers.prompts(),
                new_tokens=natural_lengths(texts),
                concurrency=streams,
                progress=narrator(what, say),
            )
        self.load.append(check_apart(runs.drafter))
        return runs


def _rates(runs: ThroughputRuns, base: Baseline, texts: Sequence[Generation], *, streams: int) -> Throughput:
    booted: BaselineSource = "boot" if base.server and base.server.owned else "attached"
    return measure_throughput(
        runs.drafter,
        baseline=runs.baseline or base.known,
        baseline_source="alternating" if base.apart else booted,
        dropped=dropped_prompts(texts),
        concurrency=streams,
        wall_s=runs.drafter_wall_s,
        baseline_wall_s=runs.baseline_wall_s,
    )
