"""Throughput passes of one probe: the drafter's server, interleaved or in turn with its baseline."""

from collections.abc import Sequence
from contextlib import ExitStack

from pytest_specprobe.findings import Finding
from pytest_specprobe.measure.boot_variation import check_apart
from pytest_specprobe.measure.checks.busy_machine import CpuTime, Part, check_load
from pytest_specprobe.measure.checks.texts import dropped_prompts
from pytest_specprobe.measure.passes import ThroughputRuns, apart_pass, natural_lengths, throughput_pass
from pytest_specprobe.measure.request import Generation
from pytest_specprobe.measure.throughput import BaselineSource, KnownBaseline, Throughput, measure_throughput
from pytest_specprobe.probe.foreign_traffic import TrafficWatch
from pytest_specprobe.probe.phases import PhaseLog, narrator
from pytest_specprobe.probe.servers.baselines import Baseline
from pytest_specprobe.probe.servers.probe_servers import ProbeServers


class Timing:
    """Runs throughput passes; ``load`` gathers what each says of the machine it ran on."""

    def __init__(self, servers: ProbeServers, *, phases: PhaseLog, watch: TrafficWatch) -> None:
        self._servers = servers
        self._phases = phases
        self._watch = watch
        self.load: list[Finding] = []

    def measure(
        self, texts: Sequence[Generation], *, streams: int, deciding: bool = True
    ) -> tuple[ThroughputRuns, Throughput]:
        """Measure the decode rate at this many requests in flight, each as long as its text in the acceptance pass.

        :param deciding: whether the verdict rests on it. A known baseline is of that many streams, and of no other.
        :raises MeasurementError: if a request fails; the measurement is then invalid.
        """
        base = self._servers.baseline()
        part: Part = "machine" if deciding else "level"
        runs = self._in_turn(texts, streams, part) if base.apart else self._interleaved(base, texts, streams, part)
        self._servers.prove_again()
        return runs, _rates(runs, base, texts, streams=streams, known=base.known if deciding else None)

    def _interleaved(self, base: Baseline, texts: Sequence[Generation], streams: int, part: Part) -> ThroughputRuns:
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
                # a turn of several streams is all prompts, so that only a second round turns the order over
                repeats=1 if streams == 1 else 2,
                concurrency=streams,
                progress=narrator(what, say),
            )
        if server.vouched and server.device == "cpu":
            self.load.append(check_load((before, CpuTime.now(pids)), part=part))
        return runs

    def _in_turn(self, texts: Sequence[Generation], streams: int, part: Part) -> ThroughputRuns:
        """Measure two servers that are never up together; the boots between the turns are phases of their own."""
        what = f"throughput, {streams} stream{'s' * (streams > 1)}, in turn with the baseline"
        with self._phases.phase("probe", what) as say, self._servers.alternation(self._watch) as alternation:
            drafter, baseline = alternation.contenders()
            runs = apart_pass(
                drafter,
                baseline,
                self._servers.prompts(),
                new_tokens=natural_lengths(texts),
                concurrency=streams,
                progress=narrator(what, say),
            )
        self.load.append(check_apart(runs.drafter))
        if alternation.turns:
            self.load.append(check_load(*alternation.turns, part=part))
        return runs


def _rates(
    runs: ThroughputRuns, base: Baseline, texts: Sequence[Generation], *, streams: int, known: KnownBaseline | None
) -> Throughput:
    booted: BaselineSource = "boot" if base.server and base.server.owned else "attached"
    return measure_throughput(
        runs.drafter,
        baseline=runs.baseline or known,
        baseline_source="alternating" if base.apart else booted,
        dropped=dropped_prompts(texts),
        concurrency=streams,
        wall_s=runs.drafter_wall_s,
        baseline_wall_s=runs.baseline_wall_s,
    )
