"""Is a stored baseline still a baseline of this machine?

Invariant: speeds of two occasions are compared only if the machine was about as fast on both, and the baseline's
interval is as wide as it was not (``KnownBaseline.seen_from``). The witness is the time to the first token on a
speculating server of the same target: mostly the target's own work, on the same prompts.
"""

from pytest_specprobe.findings import Finding
from pytest_specprobe.measure.throughput import KnownBaseline, Throughput

MOST = 1.25
"""Largest ratio of the two medians, either way. On an idle machine they agree within a few percent."""


def check_stored(throughput: Throughput, known: KnownBaseline | None) -> tuple[Finding, ...]:
    """Check that first tokens come as fast as when the baseline was stored; nothing to check without a stored one."""
    if known is None or known.source != "stored" or known.first_token_s is None:
        return ()
    now = throughput.latency.first_token_s.p50
    ratio = now / known.first_token_s
    slower = f"{ratio:.2f} times as long as" if ratio != 1 else "as long as"
    return (
        Finding(
            id="measure.stored-baseline",
            severity="error",
            status="pass" if 1 / MOST <= ratio <= MOST else "fail",
            culprit="machine",
            seen=f"first tokens after {1000 * now:.1f} ms (median), {slower} when the baseline was stored",
            expected=f"within a factor of {MOST:g}",
            why="The machine was faster or slower then: the speedup would compare two machines, not two servers.",
            fix="measure on a quiet machine, or measure the baseline beside the drafter: --specprobe-baseline=boot",
        ),
    )
