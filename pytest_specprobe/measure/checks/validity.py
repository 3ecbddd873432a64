"""Can the numbers be trusted? Each check is a Finding; a failing error makes the measurement invalid.

Invariant: checks look at what the requests say about themselves and never repair anything. Ids start with
``measure.`` except ``proof.no-speculation-fields``, which says that the server did not speculate at all.
"""

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from pytest_specprobe.errors import Culprit, SpecprobeError
from pytest_specprobe.findings import Finding, Severity
from pytest_specprobe.measure import stalls
from pytest_specprobe.measure.acceptance import Acceptance
from pytest_specprobe.measure.request import Generation
from pytest_specprobe.measure.throughput import Throughput

SPEEDUP_SLACK = 1.05
MEAN_SLACK = 0.05
_PINNED = 0.995
_PINNED_ROUNDS = 50
_UNREJECTED_ROUNDS = 200


def check_requests(
    generations: Sequence[Generation], *, depth: int, plain: Sequence[Generation] = ()
) -> tuple[Finding, ...]:
    """Check each request against itself: fields, histogram, token count, SGLang's mean, prefix hits.

    :param generations: all requests of speculating servers: acceptance pass, blind control, throughput pass.
    :param depth: D, the most drafts one round can accept.
    :param plain: all requests of the baseline.
    """
    silent = [g for g in generations if not g.rounds and g.completion_tokens > 1]
    spoken = [g for g in generations if g.histogram is not None and g.rounds]
    return (
        finding_of(
            "proof.no-speculation-fields",
            silent,
            generations,
            culprit="engine",
            expected="spec_verify_ct, accepted drafts and a histogram in every answer",
            why="A server that falls back to plain decoding answers correctly and says nothing.",
            fix="read the server's log for 'speculative'; check the algorithm is EAGLE3, and the version",
        ),
        finding_of(
            "measure.histogram",
            [g for g in spoken if not _histogram_holds(g, depth)],
            generations,
            culprit="engine",
            expected=f"histogram of 0..{depth} whose sum is the rounds and whose weighted sum is the accepted drafts",
            why="Counters that contradict each other cannot both be right, and every number rests on them.",
            fix="report the SGLang version; measure with another one",
        ),
        finding_of(
            "measure.token-count",
            [g for g in spoken if not 0 <= g.trimmed <= depth],
            generations,
            culprit="engine",
            expected=f"completion_tokens = 1 + rounds + accepted - trimmed, 0 <= trimmed <= {depth}",
            why="Tokens without rounds, or rounds without tokens: a retraction, a restart or a miscount.",
            fix="lower the concurrency (a retracted request is prefilled twice), or use another SGLang version",
        ),
        finding_of(
            "measure.server-mean",
            [g for g in spoken if not _mean_holds(g)],
            generations,
            culprit="engine",
            expected="spec_accept_length = completion_tokens / spec_verify_ct",
            why="The server's own mean does not follow from its own counts, so a field means something else here.",
            fix="report the SGLang version; its metrics may have been renamed",
        ),
        finding_of(
            "measure.prefix-hit",
            [g for g in (*generations, *plain) if g.cached_tokens > 0],
            [*generations, *plain],
            culprit="harness",
            severity="warning",
            expected="no prompt token from the prefix cache",
            why="A prefix hit leaves the drafter's own cache incomplete for the reused part (2.26 for 2.39).",
            fix="serve with --disable-radix-cache, or measure one request at a time",
        ),
    )


def check_acceptance(
    acceptance: Acceptance,
    generations: Sequence[Generation],
    *,
    server_mean: float | None = None,
    uncounted: int = 0,
) -> tuple[Finding, ...]:
    """Check an acceptance pass: not pinned, and the server's own running mean.

    :param generations: the drafter's requests.
    :param server_mean: ``avg_spec_accept_length`` of ``/server_info``, if it covers this pass (flushed before it).
    :param uncounted: the most rounds that it may lack, since SGLang adds to its total at log intervals only.
    """
    findings = [_pinned(acceptance, generations)]
    if server_mean is not None:
        rounds = sum(g.rounds or 0 for g in generations)
        own = 1 + sum(g.accepted or 0 for g in generations) / rounds  # dropped prompts too: the server saw them
        # rounds that are missing in its mean can have been all accepted, or all rejected
        slack = MEAN_SLACK * own + acceptance.depth * min(uncounted / rounds, 1.0)
        findings.append(
            finding_of(
                "measure.server-total",
                [] if abs(server_mean - own) <= slack else [f"{server_mean:.3f} against {own:.3f}"],
                generations,
                culprit="machine",
                expected=f"avg_spec_accept_length within {slack:.2f} of the probe's own accept length",
                why="The server's total covers requests that are not ours, or it lost some of ours.",
                fix="make sure that nothing else talks to this server",
            )
        )
    return tuple(findings)


def check_throughput(
    throughput: Throughput,
    generations: Sequence[Generation],
    *,
    baseline: Sequence[Generation] = (),
    new_tokens: int | Mapping[str, int] | None = None,
    acceptance: Acceptance | None = None,
) -> tuple[Finding, ...]:
    """Check a throughput pass: speedup against accept length, lengths as asked, no stalls, and the other pass.

    :param acceptance: the acceptance pass over the same prompts at the same lengths, greedily: it must say the same.
    """
    both, streams = [*generations, *baseline], throughput.concurrency
    limit = throughput.accept_length.value * SPEEDUP_SLACK
    speedup = None if throughput.speedup is None else throughput.speedup.value
    too_fast = speedup is not None and speedup > limit
    here, there = throughput.accept_length.value, acceptance.accept_length.value if acceptance else None
    apart = there is not None and abs(here - there) > MEAN_SLACK * there
    return (
        finding_of(
            "measure.speedup-above-accept-length",
            [f"speedup {speedup:.2f} at accept length {limit / SPEEDUP_SLACK:.2f}"] if too_fast else [],
            both,
            culprit="machine",
            expected=f"speedup <= accept length x {SPEEDUP_SLACK}",
            why="A round cannot be faster than a plain step, so the baseline was slowed down or not the same server.",
            fix="look for a second server or another job on this machine; measure the baseline again",
        ),
        finding_of(
            "measure.passes-disagree",
            [f"accept length {here:.2f}, {there:.2f} in the acceptance pass"] if apart else [],
            both,
            culprit="engine",
            severity="warning",
            expected=f"accept lengths of both passes within {MEAN_SLACK:.0%}",
            why="The same prompts, greedy and as long, were accepted differently: text or server has changed.",
            fix="compare the texts; look for requests that ran past their natural end, and for other traffic",
        ),
        finding_of(
            "measure.length",
            [g for g in both if new_tokens is not None and g.completion_tokens != _asked(new_tokens, g)],
            both,
            culprit="engine",
            expected="every request of the throughput pass as long as asked",
            why="Requests of different lengths are not the same work, so their speeds cannot be paired.",
            fix="check the context length of both servers",
        ),
        finding_of(
            "measure.stall",
            [*stalls.stalled(generations, streams=streams), *stalls.stalled(baseline, streams=streams)],
            both,
            culprit="machine",
            severity="warning",
            expected=stalls.expected(streams),
            why="A compilation or another job stopped the server in the middle of a measured request.",
            fix="warm up at the measured shapes; measure on a quiet machine",
        ),
    )


def invalid(error: SpecprobeError) -> Finding:
    """Return the finding of a pass that ended in an error (a failed request): it makes the measurement invalid."""
    return Finding(
        id="measure.failed",
        severity="error",
        status="fail",
        culprit=error.culprit,
        seen=error.what,
        expected="every request answered in full",
        why="A pass with a failed request is another workload than the one asked for.",
        fix=error.fix,
    )


def finding_of(
    slug: str,
    bad: Sequence[Generation] | Sequence[str],
    all_of: Sequence[Generation],
    *,
    culprit: Culprit,
    expected: str,
    why: str,
    fix: str,
    severity: Severity = "error",
) -> Finding:
    """Return the finding of a check over requests: it fails if any is ``bad``, and names the first three."""
    names = [b if isinstance(b, str) else b.prompt_id for b in bad]
    seen = f"{len(all_of)} requests, all as expected"
    if names:
        what = "" if isinstance(bad[0], str) else f"{len(names)} of {len(all_of)} requests: "
        seen = what + ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return Finding(
        id=slug,
        severity=severity,
        status="fail" if names else "pass",
        culprit=culprit,
        seen=seen,
        expected=expected,
        why=why,
        fix=fix,
    )


def _histogram_holds(g: Generation, depth: int) -> bool:
    histogram = g.histogram or ()
    weighted = sum(i * count for i, count in enumerate(histogram))
    return (
        all(count >= 0 for count in histogram)
        and not any(histogram[depth + 1 :])
        and sum(histogram) == g.rounds
        and weighted == g.accepted
    )


def _mean_holds(g: Generation) -> bool:
    mean = g.completion_tokens / (g.rounds or 1)
    return g.sglang_accept_length is None or abs(g.sglang_accept_length - mean) <= 0.01 * mean


def _pinned(acceptance: Acceptance, generations: Sequence[Generation]) -> Finding:
    # What the server said, before the end of each answer cut it: a last round that looks less accepted hides nothing.
    names = {row.id for row in acceptance.prompts if row.dropped is None}
    counts = [g.histogram or () for g in generations if g.prompt_id in names]
    histogram = [sum(column) for column in zip_longest((0,) * (acceptance.depth + 1), *counts, fillvalue=0)]
    rounds = sum(histogram)
    count, most = max((c, i) for i, c in enumerate(histogram))
    same = most > 0 and rounds >= _PINNED_ROUNDS and count >= _PINNED * rounds
    never = rounds >= _UNREJECTED_ROUNDS and histogram[0] == 0
    seen = f"{count} of {rounds} rounds accepted exactly {most} drafts" if same else ""
    if never and not same:
        seen = f"not one of {rounds} rounds rejected its first draft"
    return Finding(
        id="measure.pinned",
        severity="error",
        status="fail" if seen else "pass",
        culprit="engine",
        seen=seen or f"accepted drafts per round vary: {histogram}",
        expected="rounds that accept different numbers of drafts, some none",
        why="Simulated acceptance, lossy thresholds, NaN logits and looping text all accept without looking.",
        fix="unset SGLANG_SIMULATE_ACC_*, check the accept thresholds are 1.0, and read the texts",
    )


def _asked(new_tokens: int | Mapping[str, int], g: Generation) -> int:
    return new_tokens if isinstance(new_tokens, int) else new_tokens[g.prompt_id]
