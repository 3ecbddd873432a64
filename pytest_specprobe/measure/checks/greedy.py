"""Is each token of a drafted text the one that the target alone would have said?

A prefill of prompt and answer gives the target's own log-probabilities at every place, with nothing drafted. This
needs no baseline, and sees what counts cannot: simulated acceptance, lossy verification, an engine that loses a
rejection.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_specprobe.findings import Finding
from pytest_specprobe.measure.checks.losslessness import NEAR_TIE, NEAR_TIE_EXACT

# In 16 bits and below a prefill and a decode step round differently, and experts flip: at worst some tokens in a
# hundred. Simulated acceptance makes up a quarter of a text and more.
_ODD_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Reading:
    """One text, read by the target: at each place, the log-probability of its best token less that of the text's."""

    prompt_id: str
    gaps: tuple[float, ...]


def check_greedy(readings: Sequence[Reading], *, exact: bool) -> Finding:
    """Check that the texts are the target's own greedy choice at (nearly) every place.

    :param readings: some of the drafter's texts; none if the server gave no log-probabilities (``skip``).
    :param exact: float32 on a CPU, where every token must be.
    """
    near_tie = NEAR_TIE_EXACT if exact else NEAR_TIE
    places = [(gap, r.prompt_id, at) for r in readings for at, gap in enumerate(r.gaps)]
    odd = [place for place in places if place[0] >= near_tie]
    wrong = bool(odd) if exact else len(odd) > _ODD_SHARE * len(places)
    seen = f"{len(odd)} of {len(places)} tokens in {len(readings)} texts are not the target's best by {near_tie:g}"
    if odd:
        gap, prompt_id, at = max(odd)
        seen += f" (worst: {prompt_id} at token {at}, by {gap:.2f})"
    return Finding(
        id="measure.not-greedy",
        severity="error",
        status="fail" if wrong else "pass" if places else "skip",
        culprit="engine",
        seen=seen if places else "nothing: the server gives no log-probabilities of its input",
        expected="none" if exact else f"at most {_ODD_SHARE:.0%}",
        why="Tokens that the target would not have said were accepted: the accept length is not this drafter's. "
        "SGLANG_SIMULATE_ACC_LEN does that, and loose accept thresholds do.",
        fix="unset SGLANG_SIMULATE_ACC_* where the server is started; check the accept thresholds are 1.0",
    )
