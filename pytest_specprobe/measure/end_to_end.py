"""Whole requests, from sending one to its last token: decoding, and the time of the first token.

Invariant: the same resamples as the decode rates, so that the two speedups of a prompt stay paired.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pytest_specprobe.measure.request import Estimate, Generation
from pytest_specprobe.measure.statistics import Quantity, Resamples, combine

Requests = Sequence[Sequence[Generation]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndToEnd:
    """All tokens over all seconds of whole requests; what is of the baseline is None where it was not measured."""

    tok_per_s: float
    baseline_tok_per_s: float | None
    speedup: Estimate | None


def measure_end_to_end(resamples: Resamples, own: Requests, plain: Requests | None) -> EndToEnd:
    """Return the rates of whole requests and their ratio, paired by prompt.

    :param own: the drafter's requests by prompt, in the order of ``resamples``; ``plain``: the baseline's, or None.
    """
    rate, base = _rate(resamples, own), None if plain is None else _rate(resamples, plain)
    return EndToEnd(
        tok_per_s=rate.value,
        baseline_tok_per_s=None if base is None else base.value,
        speedup=None if base is None else combine(np.divide, rate, base).estimate(),
    )


def total_s(requests: Sequence[Generation]) -> float:
    """Return the seconds from sending each request to its last token, summed."""
    return sum(g.last_s - g.start_s for g in requests)


def _rate(resamples: Resamples, requests: Requests) -> Quantity:
    tokens = np.array([sum(g.completion_tokens for g in group) for group in requests], dtype=np.float64)
    return resamples.ratio(tokens, np.array([total_s(group) for group in requests], dtype=np.float64))
