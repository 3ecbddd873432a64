"""What a probe has measured so far, and what follows from it by arithmetic alone."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_specprobe.decide.breakeven import BreakEven, measured_break_even
from pytest_specprobe.decide.evidence import Evidence, evidence
from pytest_specprobe.decide.predicted import Predicted, predict_shorter
from pytest_specprobe.errors import MeasurementError
from pytest_specprobe.findings import Finding
from pytest_specprobe.measure.acceptance import Acceptance
from pytest_specprobe.measure.checks import validity
from pytest_specprobe.measure.checks.foreign_traffic import Prefilled, check_prefilled, check_traffic
from pytest_specprobe.measure.checks.greedy import check_greedy
from pytest_specprobe.measure.checks.losslessness import Best, Losslessness, check_texts_equal, compare_texts
from pytest_specprobe.measure.checks.odd_tokens import PairedReadings, Reading
from pytest_specprobe.measure.checks.stored_baseline import check_stored
from pytest_specprobe.measure.checks.texts import check_texts
from pytest_specprobe.measure.checks.trimmed import check_trimmed
from pytest_specprobe.measure.curve import Curve
from pytest_specprobe.measure.passes import ThroughputRuns, natural_lengths
from pytest_specprobe.measure.request import Generation, Prompt
from pytest_specprobe.measure.sampled import Sampled
from pytest_specprobe.measure.sweep import Sweep
from pytest_specprobe.measure.throughput import KnownBaseline, Throughput
from pytest_specprobe.measure.workloads import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The passes that ran; None is what did not.

    ``texts`` are the drafter's requests of the acceptance pass, ``blind`` the blind control's, ``server_mean`` what
    the server itself counted over the drafter's (but for ``uncounted`` rounds at most), ``readings`` some texts as
    the target alone reads them, ``runs`` the requests of the throughput pass, ``levels`` the passes of more streams,
    ``best`` what the target says where the texts of the two servers part, ``exact`` whether both run in float32 on a
    CPU (``exact_alone``: the drafter's).
    ``depth`` is D; ``chain`` tells whether topk is 1. ``streams`` is the most requests the probe had in flight;
    ``log_text`` the log of an owned server; ``prefilled`` the prompt tokens of each pass, sent and counted.
    """

    depth: int
    chain: bool
    workload: Workload | None
    prompts: tuple[Prompt, ...]
    texts: tuple[Generation, ...]
    blind: tuple[Generation, ...]
    server_mean: float | None
    uncounted: int
    readings: tuple[Reading, ...] | None
    acceptance: Acceptance | None
    runs: ThroughputRuns | None
    throughput: Throughput | None
    levels: tuple[tuple[ThroughputRuns, Throughput], ...]
    best: Mapping[str, Best]
    pairs: PairedReadings | None
    exact: bool
    exact_alone: bool
    known: KnownBaseline | None
    curve: Curve | None
    sampled: Sampled | None
    sweep: Sweep | None
    log_text: str | None
    prefilled: tuple[Prefilled, ...]
    streams: int
    errors: tuple[MeasurementError, ...]

    def validity(self) -> tuple[Finding, ...]:
        """Return every self-check of the passes that ran."""
        findings = [validity.invalid(error) for error in self.errors]
        if self.texts:
            plain = self.runs.baseline if self.runs else ()
            speculative = [*self.texts, *self.blind, *(self.runs.drafter if self.runs else ())]
            findings += validity.check_requests(speculative, depth=self.depth, plain=plain)
            findings += (*check_texts(self.texts, target=plain or None), check_trimmed(self.texts))
        if self.readings is not None:
            plain_texts = self.pairs.baseline if self.pairs else ()
            findings.append(check_greedy(self.readings, exact=self.exact_alone, plain=plain_texts))
        if self.acceptance is not None:
            findings += validity.check_acceptance(
                self.acceptance, self.texts, server_mean=self.server_mean, uncounted=self.uncounted
            )
        if self.throughput is not None and self.runs is not None:
            findings += validity.check_throughput(
                self.throughput,
                self.runs.drafter,
                baseline=self.runs.baseline,
                new_tokens=natural_lengths(self.texts),
                acceptance=self.acceptance,
            )
            findings += check_stored(self.throughput, self.known)
        for runs, level in self.levels:
            checks = (
                *validity.check_requests(runs.drafter, depth=self.depth, plain=runs.baseline),
                *validity.check_throughput(
                    level,
                    runs.drafter,
                    baseline=runs.baseline,
                    new_tokens=natural_lengths(self.texts),
                    acceptance=self.acceptance,
                ),
            )
            findings += _failing(checks, f"{level.concurrency} streams")
        for arm in self.sweep.arms if self.sweep else ():
            findings += _failing(validity.check_requests(arm.requests, depth=arm.setting.depth), str(arm.setting))
        lossless = self.losslessness()
        if lossless is not None:
            findings.append(check_texts_equal(lossless))
        if self.prefilled:
            findings.append(check_prefilled(self.prefilled))
        if self.log_text is not None:
            findings.append(check_traffic(self.log_text, concurrency=self.streams))
        return tuple(findings)

    @property
    def rendered(self) -> str | None:
        """Return the SHA-256 of the prompts' token ids, which template, tokenizer and thinking mode made; or None."""
        if not self.prompts:
            return None
        return hashlib.sha256(json.dumps([p.input_ids for p in self.prompts]).encode()).hexdigest()

    def losslessness(self) -> Losslessness | None:
        """Compare the texts of the throughput pass with and without speculation; None without a baseline server."""
        if self.runs is None or not self.runs.baseline:
            return None
        return compare_texts(
            self.runs.drafter, self.runs.baseline, best=self.best, exact=self.exact, readings=self.pairs
        )

    def break_even(self, *, p_reach: float) -> BreakEven | None:
        """Return the break-even point; None without a baseline."""
        if self.throughput is None or self.throughput.break_even_length is None:
            return None
        return measured_break_even(
            self.throughput.break_even_length, round_s=self.throughput.round_s, depth=self.depth, p_reach=p_reach
        )

    def evidence(self, *, p_reach: float) -> Evidence | None:
        """Return what the decision looks at; None before the acceptance pass."""
        if self.acceptance is None:
            return None
        return evidence(self.acceptance, self.throughput, self.break_even(p_reach=p_reach))

    def predicted(self) -> tuple[Predicted, ...]:
        """Return brackets for every shorter chain; none for a tree."""
        if self.acceptance is None or not self.chain:
            return ()
        return predict_shorter(self.acceptance, self.throughput)


def _failing(checks: Sequence[Finding], where: str) -> list[Finding]:
    """Return what failed beside the pass that decides, and where: passing checks of the same ids are told once."""
    return [replace(f, seen=f"{f.seen} (at {where})") for f in checks if f.status == "fail"]
