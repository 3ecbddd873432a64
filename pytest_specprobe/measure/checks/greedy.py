"""Is each token of a drafted text the one that the target alone would have said?

A prefill of prompt and answer gives the target's own log-probabilities at every place, with nothing drafted. This
needs no baseline, and sees what counts cannot: simulated acceptance, lossy verification, an engine that loses a
rejection.
"""

from collections.abc import Sequence

from pytest_specprobe.findings import Finding, Severity
from pytest_specprobe.measure.checks.odd_tokens import (
    NEAR_TIE,
    NEAR_TIE_EXACT,
    Excess,
    Reading,
    count_odd,
    measure_excess,
)

# Surely more odd tokens than a plain server writes: one in a hundred moves an accept length by as much, at most.
EXCESS_ERROR = 0.01
EXCESS_WARNING = 0.0025
# Without a plain server to compare with. A trained MoE in bf16 writes 0.6 % of odd tokens by its own arithmetic;
# simulated acceptance makes up a quarter of a text and more.
ALONE_ERROR = 0.10
ALONE_WARNING = 0.02


def check_greedy(readings: Sequence[Reading], *, exact: bool, plain: Sequence[Reading] = ()) -> Finding:
    """Check that the texts are the target's own greedy choice as often as a plain server's texts are.

    :param readings: some of the drafter's texts; none if the server gave no log-probabilities (``skip``).
    :param exact: float32 on a CPU, where every token must be.
    :param plain: texts of the baseline, read in the same way. Without two of the same prompts an absolute bound
        stands for them.
    """
    near_tie = NEAR_TIE_EXACT if exact else NEAR_TIE
    odd = count_odd(readings, near_tie=near_tie)
    excess = None if exact else measure_excess(readings, plain, near_tie=near_tie)
    severity: Severity | None = severity_of(excess, odd.rate)
    if exact:
        severity = "error" if odd.odd else None
    seen = f"{odd} are not the target's best by {near_tie:g}" if excess is None else str(excess)
    if odd.odd:
        gap, prompt_id, at = max((gap, r.prompt_id, at) for r in readings for at, gap in enumerate(r.gaps))
        seen += f" (worst: {prompt_id} at token {at}, by {gap:.2f})"
    return Finding(
        id="measure.not-greedy",
        severity=severity or "error",
        status="fail" if severity else "pass" if odd.tokens else "skip",
        culprit="engine",
        seen=seen if odd.tokens else "nothing: the server gives no log-probabilities of its input",
        expected="none" if exact else expected_of(excess),
        why="Tokens that the target would not have said were accepted: the accept length is not this drafter's. "
        "SGLANG_SIMULATE_ACC_LEN does that, and loose accept thresholds do.",
        fix="unset SGLANG_SIMULATE_ACC_* where the server is started; check the accept thresholds are 1.0",
    )


def severity_of(excess: Excess | None, rate: float | None) -> Severity | None:
    """Return how bad these odd tokens are; None if they are as many as a plain server writes.

    A plain server that writes more of them than its own arithmetic explains is no control: that is an error too.

    :param excess: over the plain server's texts; None without them, when ``rate`` alone is judged.
    :param rate: the odd tokens per token of the drafter's texts; None without any token.
    """
    if excess is None:
        return _worst(rate or 0.0, error=ALONE_ERROR, warning=ALONE_WARNING)
    if (excess.baseline.rate or 0.0) > ALONE_ERROR:
        return "error"
    return _worst(excess.more.low, error=EXCESS_ERROR, warning=EXCESS_WARNING)


def expected_of(excess: Excess | None) -> str:
    """Return in words what ``severity_of`` expects."""
    if excess is None:
        return f"at most {ALONE_WARNING:.0%}; no plain server's texts to compare with"
    return f"as many as in the plain server's texts, surely no more than {EXCESS_WARNING:.2%} of the tokens beyond"


def _worst(seen: float, *, error: float, warning: float) -> Severity | None:
    return "error" if seen > error else "warning" if seen > warning else None
