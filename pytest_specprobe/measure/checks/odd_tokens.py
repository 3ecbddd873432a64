"""Odd tokens: those of a text that the target, reading it in one prefill, would not have said.

In 16 bits and below, a prefill and a decode step round differently, and experts flip: a plain server's own texts hold
odd tokens too. So they are the control: the drafter's texts may hold as many per token, and surely no more.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pytest_specprobe.measure.request import Estimate
from pytest_specprobe.measure.statistics import FloatArray, combine, resample

# How far two log-probabilities may be apart and still swap when the same sums are made in another order: rounding of
# float32, and two steps of a 16-bit logit between 16 and 32.
NEAR_TIE_EXACT = 0.01
NEAR_TIE = 0.25


@dataclass(frozen=True, slots=True)
class Reading:
    """One text, read by the target: at each place, the log-probability of its best token less that of the text's."""

    prompt_id: str
    workload: str
    gaps: tuple[float, ...]

    def odd(self, near_tie: float) -> int:
        """Return how many tokens are ``near_tie`` or more below the target's best."""
        return sum(gap >= near_tie for gap in self.gaps)


@dataclass(frozen=True, slots=True)
class PairedReadings:
    """Texts of the same prompts with and without speculation, read by the same server; in the same order."""

    drafter: tuple[Reading, ...]
    baseline: tuple[Reading, ...]


@dataclass(frozen=True, slots=True)
class OddTokens:
    """How many tokens of some texts are odd."""

    texts: int
    tokens: int
    odd: int

    @property
    def rate(self) -> float | None:
        """Return the odd tokens per token; None without any token."""
        return self.odd / self.tokens if self.tokens else None

    def __str__(self) -> str:
        return f"{self.odd} of {self.tokens} tokens in {self.texts} texts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """Odd tokens with and without speculation.

    ``more`` is the drafter's rate less the baseline's, per token, with its interval over prompts: negative where the
    plain server's texts hold more of them.
    """

    drafter: OddTokens
    baseline: OddTokens
    more: Estimate

    def __str__(self) -> str:
        low, high = self.more.low, self.more.high
        return (
            f"the target would not have said {self.drafter} with the drafter, and {self.baseline} without it: "
            f"{self.more.value:+.2%} [{low:+.2%}, {high:+.2%}] of the tokens"
        )


def count_odd(readings: Sequence[Reading], *, near_tie: float) -> OddTokens:
    """Return how many tokens of these texts are odd."""
    tokens = sum(len(reading.gaps) for reading in readings)
    return OddTokens(len(readings), tokens, sum(reading.odd(near_tie) for reading in readings))


def measure_excess(drafter: Sequence[Reading], baseline: Sequence[Reading], *, near_tie: float) -> Excess | None:
    """Compare the texts of the prompts that both sides hold; None if those are fewer than two."""
    plain = {reading.prompt_id: reading for reading in baseline if reading.gaps}
    own = [reading for reading in drafter if reading.gaps and reading.prompt_id in plain]
    if len(own) < 2:
        return None
    samples = resample([reading.workload for reading in own])
    sides = own, [plain[reading.prompt_id] for reading in own]
    rates = (samples.ratio(*_columns(readings, near_tie)) for readings in sides)
    counts = [count_odd(readings, near_tie=near_tie) for readings in sides]
    return Excess(drafter=counts[0], baseline=counts[1], more=combine(np.subtract, *rates).estimate())


def _columns(readings: Sequence[Reading], near_tie: float) -> tuple[FloatArray, FloatArray]:
    return (
        np.array([reading.odd(near_tie) for reading in readings], dtype=np.float64),
        np.array([len(reading.gaps) for reading in readings], dtype=np.float64),
    )
