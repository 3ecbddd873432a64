"""Requests that a stalled server held up.

Invariant: with several streams a stall is a time in which *no* stream of that server got anything. One stream alone
waits whenever the server prefills another's prompt, or the client does not get round to reading it; an idle server
at 16 streams does so in every second request. So a silence counts only beyond what the level itself shows: gaps
between tokens, and while a prompt waits for its prefill the level's own quick first tokens. One stream is alone, and
its gaps are the server's silences.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_specprobe.measure.request import Generation
from pytest_specprobe.measure.statistics import FloatArray

SHARE = 0.05
FACTOR = 20.0
PREFILLS = 3.0
_FEWEST_GAPS = 8
# Few prompts are as quick, but those neither queued nor waited for a stall.
_QUICK = 0.1


@dataclass(frozen=True, slots=True)
class _Silence:
    begin_s: float
    end_s: float

    @property
    def seconds(self) -> float:
        return self.end_s - self.begin_s


def stalled(requests: Sequence[Generation], *, streams: int) -> list[Generation]:
    """Return the requests of one server that it kept waiting: longer than usual, and for a share of their time.

    :param requests: all of one server at one level, so that what other streams got meanwhile is known.
    :param streams: how many were in flight.
    """
    level = _Level(requests) if streams > 1 else None
    return [g for g in requests if any(_unusual(g, level))]


def expected(streams: int) -> str:
    """Return what the check expects at this many streams."""
    if streams == 1:
        return f"no gap of {FACTOR:.0f} usual gaps that takes {SHARE:.0%} of a request"
    return (
        f"no silence of all streams for {FACTOR:.0f} usual gaps, and {PREFILLS:.0f} quick first tokens while a "
        f"prompt waits, that takes {SHARE:.0%} of a request"
    )


class _Level:
    """What all streams of one server got, and when prompts waited for their first token."""

    def __init__(self, requests: Sequence[Generation]) -> None:
        self._arrivals: FloatArray = np.sort(np.array([at for g in requests for at in g.chunk_s], dtype=np.float64))
        self._start_s, self._first_s, self._tokens = (
            np.array([getattr(g, name) for g in requests], dtype=np.float64)
            for name in ("start_s", "first_s", "prompt_tokens")
        )
        waits = self._first_s - self._start_s
        self._quick_s = float(np.quantile(waits, _QUICK)) if len(waits) else 0.0
        self._usual_tokens = max(float(np.median(self._tokens)), 1.0) if len(waits) else 1.0

    def silences(self, gap: _Silence, *, longer_s: float) -> Iterator[_Silence]:
        """Yield the times within a stream's gap in which no stream got anything for so long."""
        first, last = np.searchsorted(self._arrivals, [gap.begin_s, gap.end_s])
        within = self._arrivals[first : last + 1]
        for at in np.flatnonzero(np.diff(within) > longer_s):
            yield _Silence(float(within[at]), float(within[at + 1]))

    def prefill_s(self, silence: _Silence) -> float:
        """Return how long the prefill of prompts that waited in this silence may take; 0 if none did."""
        waited = (self._start_s < silence.end_s) & (self._first_s > silence.begin_s)
        if not waited.any():
            return 0.0
        longest = float(self._tokens[waited].max()) / self._usual_tokens
        return PREFILLS * self._quick_s * max(longest, 1.0)


def _unusual(g: Generation, level: _Level | None) -> Iterator[bool]:
    """Yield True for each silence of the server that held up this request."""
    gaps = [_Silence(earlier, later) for earlier, later in zip(g.chunk_s, g.chunk_s[1:], strict=False)]
    if len(gaps) < _FEWEST_GAPS:
        return
    usual_s = sorted(gap.seconds for gap in gaps)[len(gaps) // 2]
    limit_s, share_s = FACTOR * usual_s, SHARE * (g.last_s - g.first_s)
    for gap in gaps:
        if gap.seconds <= limit_s or gap.seconds <= share_s:
            continue
        if level is None:
            yield True
            continue
        longer_s = max(limit_s, share_s)
        for silence in level.silences(gap, longer_s=longer_s):
            yield silence.seconds > max(limit_s + level.prefill_s(silence), share_s)
