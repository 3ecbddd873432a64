"""One drafter's probe: what was measured, checked and decided. Every step runs when first asked for, once."""

from dataclasses import dataclass, replace

from pytest_specprobe.checkpoint.files.read import load_drafter
from pytest_specprobe.checkpoint.vocab_mapping import vocab_map
from pytest_specprobe.decide.evidence import Evidence
from pytest_specprobe.decide.verdict import Decision, decide
from pytest_specprobe.errors import MeasurementError, ProbeImpossible, SpecprobeError
from pytest_specprobe.findings import MEASUREMENT, Finding, require
from pytest_specprobe.measure.acceptance import Acceptance, measure_acceptance
from pytest_specprobe.measure.checks.busy_machine import BUSY_MACHINE, CROWDED_MACHINE
from pytest_specprobe.measure.checks.losslessness import questions
from pytest_specprobe.measure.checks.texts import check_texts, dropped_prompts
from pytest_specprobe.measure.checks.validity import invalid
from pytest_specprobe.measure.curve import Curve, curve
from pytest_specprobe.measure.passes import (
    ThroughputRuns,
    acceptance_pass,
    natural_lengths,
)
from pytest_specprobe.measure.request import Generation
from pytest_specprobe.measure.sampled import Sampled, check_sampled, measure_sampled
from pytest_specprobe.measure.sweep import Sweep
from pytest_specprobe.measure.throughput import Throughput
from pytest_specprobe.probe.context import ProbeContext
from pytest_specprobe.probe.files import Checked, ProbeFiles
from pytest_specprobe.probe.foreign_traffic import TrafficWatch
from pytest_specprobe.probe.measured import Measured
from pytest_specprobe.probe.once import Once
from pytest_specprobe.probe.passes.sweep import SweepPlan, SweepRun
from pytest_specprobe.probe.passes.target_readings import ask_target, read_pairs, read_texts
from pytest_specprobe.probe.passes.throughput import Timing
from pytest_specprobe.probe.phases import narrator
from pytest_specprobe.probe.plan.boots import other_settings
from pytest_specprobe.probe.servers.probe_servers import CANARY_TOKENS, ProbeServers
from pytest_specprobe.profiles import Speculation
from pytest_specprobe.server.boot import Server
from pytest_specprobe.server.http.info import ServerInfo
from pytest_specprobe.staging import context_length

# Accepted drafts do not depend on what else is in the batch, and four streams at once take a third of the time.
ACCEPTANCE_STREAMS = 4


@dataclass(frozen=True, slots=True)
class State:
    """How far a probe is: the passes, every check (static, proof, validity), and the decision on both."""

    measured: Measured
    findings: tuple[Finding, ...]
    decision: Decision


@dataclass(frozen=True, slots=True)
class _Results:
    """What was measured, and what follows by arithmetic, as of a version of the steps."""

    version: tuple[int, int]
    measured: Measured
    validity: tuple[Finding, ...]
    evidence: Evidence | None


class ProbeRun:
    """The probe of one drafter; asking a step again gives the same answer, or the same error."""

    def __init__(self, context: ProbeContext) -> None:
        self.profile = context.profile
        self.phases = context.phases
        self.clock = context.session.clock
        self._settings = context.settings
        self._once = Once()
        self._load: list[Finding] = []
        self._watch = TrafficWatch()
        self._results: _Results | None = None
        self.files = ProbeFiles(context, self._once)
        self.servers = ProbeServers(context, self.files, self._once)
        self._timing = Timing(self.servers, phases=self.phases, watch=self._watch)

    def acceptance(self) -> Acceptance:
        """Measure what the target accepts, on the drafter's server and on its blind control.

        :raises MeasurementError: if a request fails; the measurement is then invalid.
        """
        return self._once.get("acceptance", self._acceptance)

    def _acceptance(self) -> Acceptance:
        own = self._once.get("texts", self._texts)
        dropped = dropped_prompts(own)
        if len(own) - len(dropped) < 2:
            require(check_texts(own))  # nothing is left to measure, and this says why
        checked = self.files.checkpoint()
        files = load_drafter(checked.drafter)
        mapping = vocab_map(files.weights, vocab=checked.target.vocab_rows or 0)
        return measure_acceptance(
            own,
            depth=self.profile.drafter.speculation.depth,
            blind=self._once.get("blind", self._blind) if self.servers.wants_blind() else None,
            mapped_ids=None if mapping is None else [int(i) for i in mapping.ids],
            drafter_length=context_length(files.config),
            dropped=dropped,
        )

    def _texts(self) -> tuple[Generation, ...]:
        server = self.servers.server()
        texts = self._accept(server, what="drafter")
        total = self.servers.prove_again()
        # the pass began with a flush, which also resets the server's own totals
        self._once.get("server total", lambda: total)
        self._once.get("readings", lambda: read_texts(server.client, self.servers.prompts(), texts))
        return texts

    def sampled(self) -> Sampled | None:
        """Measure acceptance at ``--specprobe-temperature``; None if it was not asked for, or nothing was sampled.

        Nothing of it enters the verdict, not even a failed request.
        """
        temperature = self._settings.temperature
        if temperature is None:
            return None
        return self._once.get("sampled", lambda: self._sampled(temperature))

    def _sampled(self, temperature: float) -> Sampled | None:
        greedy, own = self.acceptance(), self._once.get("texts", self._texts)
        try:
            server, what = self.servers.server(), f"drafter at {temperature:g}"
            # a watch of its own: requests of others in this pass are nothing to the verdict either
            texts = self._accept(server, what=what, watch=TrafficWatch(), temperature=temperature)
            check = check_sampled(texts, own)
            found = measure_sampled(texts, greedy, temperature=temperature, dropped=dropped_prompts(own))
        except SpecprobeError as error:
            self._load.append(replace(invalid(error), id="measure.sampled-failed", severity="warning"))
            return None
        self._load.append(check)
        return None if check.status == "fail" else found

    def _accept(
        self, server: Server, *, what: str, watch: TrafficWatch | None = None, temperature: float = 0.0
    ) -> tuple[Generation, ...]:
        with self.phases.phase("warm up", what):
            for prompt in self.servers.prompts()[:2]:
                server.client.generate(prompt, max_new_tokens=CANARY_TOKENS, ignore_eos=True)
        with (
            self.phases.phase("probe", f"acceptance, {what}") as say,
            (watch or self._watch).over(server, what) as client,
        ):
            return acceptance_pass(
                client,
                self.servers.prompts(),
                max_new_tokens=self.profile.target.max_new_tokens,
                concurrency=ACCEPTANCE_STREAMS,
                temperature=temperature,
                progress=narrator(what, say),
            )

    def _blind(self) -> tuple[Generation, ...]:
        with self.servers.blind() as server:
            return self._accept(server, what="blind control")

    def throughput(self, *, streams: int | None = None) -> Throughput:
        """Measure the decode rate, interleaved with the baseline.

        :param streams: requests in flight; None is the first level asked for, on which the decision rests.
        :raises MeasurementError: if a request fails; the measurement is then invalid.
        """
        if streams is None or streams == self._settings.concurrency[0]:
            return self._once.get("speed", self._first_speed)[1]
        return self._once.get(f"speed at {streams}", lambda: self._speed(streams))[1]

    def _first_speed(self) -> tuple[ThroughputRuns, Throughput]:
        runs, throughput = self._speed(self._settings.concurrency[0])
        server = self.servers.baseline().server or self.servers.server()
        asked = questions(runs.drafter, runs.baseline, self.servers.prompts())
        self._once.get("best", lambda: ask_target(server.client, asked))
        if runs.baseline and not self.servers.proofs.exact:
            prompts = self.servers.prompts()
            self._once.get("pairs", lambda: read_pairs(server.client, prompts, runs.drafter, runs.baseline))
        return runs, throughput

    def _speed(self, streams: int) -> tuple[ThroughputRuns, Throughput]:
        deciding = streams == self._settings.concurrency[0]
        return self._timing.measure(self._once.get("texts", self._texts), streams=streams, deciding=deciding)

    def curve(self) -> Curve | None:
        """Measure the decode rate at every concurrency asked for; None if only one was."""
        levels = self._settings.concurrency
        if len(levels) < 2:
            return None
        return self._once.get("curve", lambda: curve([self.throughput(streams=n) for n in levels]))

    def sweep(self) -> Sweep | None:
        """Measure the settings of ``--specprobe-sweep`` beside the profile's own; None if none was asked for."""
        own = self.profile.drafter.speculation
        arms = (own, *other_settings(own, self._settings.sweep))
        return self._once.get("sweep", lambda: self._sweep(arms)) if len(arms) > 1 else None

    def _sweep(self, arms: tuple[Speculation, ...]) -> Sweep:
        runs, texts = self._once.get("speed", self._first_speed)[0], self._once.get("texts", self._texts)
        plan = SweepPlan(
            own=arms[0],
            settings=arms,
            runs=runs,
            lengths=natural_lengths(texts),
            dropped=dropped_prompts(texts),
            streams=self._settings.concurrency[0],
        )
        run = SweepRun(plan, self.servers, self.phases)
        sweep = run.run()
        self._load += run.load
        return sweep

    # --- what is known so far: nothing below starts a server -------------------------------------------------

    def measured(self) -> Measured:
        """Return what was measured so far."""
        return self._results_so_far().measured

    def validity(self) -> tuple[Finding, ...]:
        """Return every self-check of the passes that ran."""
        return self._results_so_far().validity

    def _results_so_far(self) -> _Results:
        """Look through texts and log once per change: a log may be 64 MiB, and every phase and test asks."""
        version = (self._once.version, len(self._watch.passes))
        if self._results is None or self._results.version != version:
            measured = self._measured()
            evidence = measured.evidence(p_reach=self.profile.drafter.gate.p_reach)
            self._results = _Results(version, measured, measured.validity(), evidence)
        return self._results

    def _measured(self) -> Measured:
        peek = self._once.peek
        total: ServerInfo | None = peek("server total")
        speed: tuple[ThroughputRuns, Throughput] | None = peek("speed")
        return Measured(
            depth=self.profile.drafter.speculation.depth,
            chain=self.profile.drafter.speculation.eagle_topk == 1,
            workload=peek("workload"),
            prompts=peek("prompts") or (),
            texts=peek("texts") or (),
            blind=peek("blind") or (),
            server_mean=None if total is None else total.server_accept_length,
            readings=peek("readings"),
            uncounted=0 if total is None else total.decode_log_interval * ACCEPTANCE_STREAMS,
            acceptance=peek("acceptance"),
            runs=None if speed is None else speed[0],
            throughput=None if speed is None else speed[1],
            levels=tuple(level for n in self._settings.concurrency[1:] if (level := peek(f"speed at {n}"))),
            best=peek("best") or {},
            pairs=peek("pairs"),
            exact=self.servers.proofs.exact,
            exact_alone=self.servers.proofs.exact_alone,
            known=self.servers.known_baseline,
            curve=peek("curve"),
            sampled=peek("sampled"),
            sweep=peek("sweep"),
            log_text=None if speed is None else self.servers.log_text(),
            prefilled=self._watch.passes,
            streams=max(ACCEPTANCE_STREAMS, *self._settings.concurrency),
            errors=tuple(e for e in self._once.errors if isinstance(e, MeasurementError)),
        )

    def state(self, *, narrowed: bool = False) -> State:
        """Return what was measured so far, every check of it, and what follows.

        ``narrowed``: the run was asked for less than a verdict (``--specprobe-static``, ``-k``).
        """
        checked: Checked | None = self._once.peek("checkpoint")
        results = self._results_so_far()
        findings = (
            *(checked.findings if checked else ()),
            *self.servers.proofs.all(),
            *results.validity,
            *self._timing.load,
            *self._load,
        )
        decision = decide(
            results.evidence,
            gate=self.profile.drafter.gate,
            findings=findings,
            impossible=[error for error in self.errors if isinstance(error, ProbeImpossible)],
            narrowed=narrowed,
        )
        return State(results.measured, findings, decision)

    def decision(self) -> Decision:
        """Decide on what was measured so far."""
        return self.state().decision

    def log_tail(self) -> str:
        """Return the last lines of the drafter's server log; empty before the boot."""
        server = self.servers.drafter
        return "" if server is None else server.log_tail()

    def benchmark_info(self, *, streams: int) -> dict[str, str | int]:
        """Return what a stored benchmark needs beside its numbers, to be comparable with another."""
        return {
            "unit": "OPS is tok/s of one stream; times are seconds per token",
            "concurrency": streams,
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
        """Store a baseline that can be trusted, and stop this drafter's own servers; the shared baseline stays up."""
        if self._once.peek("speed") is not None:
            self._once.get("kept baseline", self._keep_baseline)
        self.servers.close()

    def _keep_baseline(self) -> None:
        """Store the baseline for later runs, unless a check says that it was not alone or went wrong."""
        wrong = [f for f in self.state().findings if f.status == "fail" and f.id.startswith(MEASUREMENT)]
        if not any(f.severity == "error" or f.id in (BUSY_MACHINE, CROWDED_MACHINE) for f in wrong):
            self.servers.baselines.keep(self._once.peek("speed")[1])
