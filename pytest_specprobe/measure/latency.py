"""How long requests wait: for the first token, and from arrival to arrival."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pytest_specprobe.measure.request import Generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Seconds at three percentiles, and how many measurements they are of."""

    p50: float
    p90: float
    p99: float
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Waiting times of one server's requests.

    ``first_token_s`` runs from sending a request to its first token. ``inter_token_s`` spreads each gap between two
    arrivals over the tokens of the later one; ``inter_arrival_s`` is the gap itself, what a reader sees. None where
    no request has a second arrival.
    """

    first_token_s: Percentiles
    inter_token_s: Percentiles | None
    inter_arrival_s: Percentiles | None


def measure_latency(requests: Sequence[Generation]) -> Latency:
    """Return the waiting times of these requests in seconds; a gap counts once per token of its later arrival."""
    gaps = [
        (later - earlier, tokens)
        for g in requests
        for earlier, later, tokens in zip(g.chunk_s, g.chunk_s[1:], g.chunk_tokens[1:], strict=False)
        if tokens > 0
    ]
    per_token = [gap / tokens for gap, tokens in gaps for _ in range(tokens)]
    return Latency(
        first_token_s=_percentiles([g.first_s - g.start_s for g in requests]),
        inter_token_s=_percentiles(per_token) if gaps else None,
        inter_arrival_s=_percentiles([gap for gap, _ in gaps]) if gaps else None,
    )


def _percentiles(seconds: Sequence[float]) -> Percentiles:
    p50, p90, p99 = (float(p) for p in np.percentile(np.array(seconds), [50, 90, 99]))
    return Percentiles(p50=p50, p90=p90, p99=p99, n=len(seconds))
