"""One drafter's probe: what was measured, checked and decided. Every step runs when first asked for, once."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pytest_specprobe.checkpoint.read import load_drafter
from pytest_specprobe.checkpoint.vocab import vocab_map
from pytest_specprobe.decide.breakeven import BreakEven, measured_break_even
from pytest_specprobe.decide.verdict import Decision, decide, evidence
from pytest_specprobe.errors import MeasurementError, SpecprobeError
from pytest_specprobe.findings import Finding
from pytest_specprobe.measure import validity
from pytest_specprobe.measure.acceptance import Acceptance, measure_acceptance
from pytest_specprobe.measure.losslessness import Losslessness, compare_texts
from pytest_specprobe.measure.passes import ThroughputRuns, acceptance_pass, natural_lengths, throughput_pass
from pytest_specprobe.measure.records import Generation
from pytest_specprobe.measure.throughput import Throughput, declared, measure_throughput
from pytest_specprobe.measure.workloads import Workload
from pytest_specprobe.probe.boots import BaselinePool
from pytest_specprobe.probe.clock import TokenClock
from pytest_specprobe.probe.files import Checked, ProbeFiles
from pytest_specprobe.probe.once import Once
from pytest_specprobe.probe.phases import PhaseLog, narrator
from pytest_specprobe.probe.servers import CANARY_TOKENS, ProbeServers
from pytest_specprobe.profiles import Profile
from pytest_specprobe.server.boot import Server
from pytest_specprobe.settings import Settings
from pytest_specprobe.staging import context_length

MAX_NEW_TOKENS = 256
# Accepted drafts do not depend on what else is in the batch, and four streams at once take a third of the time.
ACCEPTANCE_STREAMS = 4


@dataclass(frozen=True, slots=True)
class Shared:
    """What the probes of one session have in common. ``cache`` holds staged drafters."""

    settings: Settings
    clock: TokenClock
    server_args: Callable[[Profile], tuple[str, ...]]
    baselines: BaselinePool
    cache: Path


@dataclass(frozen=True, slots=True)
class Measured:
    """What a probe has measured so far; None is what it has not."""

    workload: dict[str, str | int] | None
    acceptance: Acceptance | None
    throughput: Throughput | None
    break_even: BreakEven | None
    losslessness: Losslessness | None


class ProbeRun:
    """The probe of one drafter; asking a step again gives the same answer, or the same error."""

    def __init__(self, profile: Profile, shared: Shared, phases: PhaseLog) -> None:
        self.profile = profile
        self.phases = phases
        self.clock = shared.clock
        self._settings = shared.settings
        self._once = Once()
        self.files = ProbeFiles(profile, settings=shared.settings, cache=shared.cache, phases=phases, once=self._once)
        self.servers = ProbeServers(
            profile,
            self.files,
            settings=shared.settings,
            extra_args=shared.server_args,
            baselines=shared.baselines,
            phases=phases,
            once=self._once,
        )

    def acceptance(self) -> Acceptance:
        """Measure what the target accepts, on the drafter's server and on its blind control.

        :raises MeasurementError: if a request fails; the measurement is then invalid.
        """
        return self._once.get("acceptance", self._acceptance)

    def _acceptance(self) -> Acceptance:
        own = self._once.get("texts", lambda: self._accept(self.servers.server(), what="drafter"))
        checked = self.files.checkpoint()
        files = load_drafter(checked.drafter)
        mapping = vocab_map(files.weights, vocab=checked.target.vocab_rows or 0)
        return measure_acceptance(
            own,
            depth=self.profile.drafter.speculation.depth,
            blind=self._once.get("blind", self._blind) if self.servers.wants_blind() else None,
            mapped_ids=None if mapping is None else [int(i) for i in mapping.ids],
            drafter_length=context_length(files.config),
            dropped=validity.dropped_prompts(own),
        )

    def _accept(self, server: Server, *, what: str) -> tuple[Generation, ...]:
        with self.phases.phase("warm up", what):
            for prompt in self.servers.prompts()[:2]:
                server.client.generate(prompt, max_new_tokens=CANARY_TOKENS, ignore_eos=True)
        with self.phases.phase("probe", f"acceptance, {what}") as say:
            return acceptance_pass(
                server.client,
                self.servers.prompts(),
                max_new_tokens=MAX_NEW_TOKENS,
                concurrency=ACCEPTANCE_STREAMS,
                progress=narrator(what, say),
            )

    def _blind(self) -> tuple[Generation, ...]:
        with self.servers.blind() as server:
            return self._accept(server, what="blind control")

    def throughput(self) -> Throughput:
        """Measure the decode rate, interleaved with the baseline.

        :raises MeasurementError: if a request fails; the measurement is then invalid.
        """
        return self._once.get("throughput", self._throughput)

    def _throughput(self) -> Throughput:
        base, server = self.servers.baseline(), self.servers.server()
        level = self._settings.concurrency[0]
        own = self._once.get("texts", lambda: self._accept(server, what="drafter"))
        with self.phases.phase("probe", "throughput, interleaved with the baseline") as say:
            runs = throughput_pass(
                server.client,
                None if base.server is None else base.server.client,
                self.servers.prompts(),
                new_tokens=natural_lengths(own),
                repeats=1,
                concurrency=level,
                progress=narrator("throughput", say),
            )
        self._once.get("runs", lambda: runs)
        return measure_throughput(
            runs.drafter,
            baseline=runs.baseline or (declared(base.tok_per_s) if base.tok_per_s else None),
            baseline_source="boot" if base.server and base.server.owned else "attached",
            dropped=validity.dropped_prompts(own),
            concurrency=level,
            wall_s=runs.drafter_wall_s,
            baseline_wall_s=runs.baseline_wall_s,
        )

    # --- decision --------------------------------------------------------------------------------------------

    def validity(self) -> tuple[Finding, ...]:
        """Return every self-check of the passes that ran."""
        findings: list[Finding] = []
        depth = self.profile.drafter.speculation.depth
        own: tuple[Generation, ...] = self._once.peek("texts") or ()
        acceptance: Acceptance | None = self._once.peek("acceptance")
        throughput: Throughput | None = self._once.peek("throughput")
        runs: ThroughputRuns | None = self._once.peek("runs")
        if acceptance is not None:
            findings += validity.check_requests(own, depth=depth)
            findings += validity.check_acceptance(acceptance, own)
        if throughput is not None and runs is not None:
            findings += validity.check_throughput(
                throughput, runs.drafter, baseline=runs.baseline, new_tokens=natural_lengths(own)
            )
        findings += (validity.invalid(error) for error in self._once.errors if isinstance(error, MeasurementError))
        return tuple(findings)

    def losslessness(self) -> Losslessness | None:
        """Compare the texts of the throughput pass with and without speculation; None without a baseline server."""
        runs: ThroughputRuns | None = self._once.peek("runs")
        return compare_texts(runs.drafter, runs.baseline) if runs and runs.baseline else None

    def break_even(self) -> BreakEven | None:
        """Return the break-even point; None without a baseline."""
        throughput: Throughput | None = self._once.peek("throughput")
        if throughput is None or throughput.break_even_length is None:
            return None
        return measured_break_even(
            throughput.break_even_length,
            round_s=throughput.round_s,
            depth=self.profile.drafter.speculation.depth,
            p_reach=self.profile.drafter.gate.p_reach,
        )

    def findings(self) -> tuple[Finding, ...]:
        """Return every check of this probe so far: static, proof, validity."""
        checked: Checked | None = self._once.peek("checkpoint")
        return (*(checked.findings if checked else ()), *self.servers.proof(), *self.validity())

    def decision(self) -> Decision:
        """Decide on what was measured so far."""
        acceptance: Acceptance | None = self._once.peek("acceptance")
        throughput: Throughput | None = self._once.peek("throughput")
        seen = None if acceptance is None else evidence(acceptance, throughput, self.break_even())
        return decide(seen, gate=self.profile.drafter.gate, findings=self.findings())

    def measured(self) -> Measured:
        """Return what was measured so far; starts nothing."""
        workload: Workload | None = self._once.peek("workload")
        return Measured(
            None
            if workload is None
            else {"name": workload.name, "digest": workload.digest, "prompts": len(workload.chats)},
            self._once.peek("acceptance"),
            self._once.peek("throughput"),
            self.break_even(),
            self.losslessness(),
        )

    def log_tail(self) -> str:
        """Return the last lines of the drafter's server log; empty before the boot."""
        server = self.servers.drafter
        return "" if server is None else server.log_tail()

    def benchmark_info(self) -> dict[str, str]:
        """Return what a stored benchmark needs beside its numbers, to be comparable with another."""
        return {
            "unit": "OPS is tok/s of one stream; times are seconds per token",
            "drafter": self.profile.name,
            "target": self.profile.target_name,
            "speculation": str(self.profile.drafter.speculation),
            "workload": self.servers.workload().name,
            "workload_digest": self.servers.workload().digest,
            "sglang": self.servers.server().client.version(),
        }

    @property
    def errors(self) -> tuple[SpecprobeError, ...]:
        """Return what went wrong, each error once."""
        return self._once.errors

    def close(self) -> None:
        """Stop this drafter's own servers; the baseline is shared and stays."""
        self.servers.close()
