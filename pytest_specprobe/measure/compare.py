"""Which of several runs is better, and how surely: paired by prompt.

Invariant: only prompts that every run measured count, all runs are resampled together, and a winner is named only if
its paired interval against *each* other run excludes a tie. Speeds are of other boots, which is in their intervals
(``boot_spread``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

import numpy as np

from pytest_specprobe.errors import MeasurementError
from pytest_specprobe.measure.boot_spread import over_boots
from pytest_specprobe.measure.prompt_rows import PromptRow
from pytest_specprobe.measure.request import Estimate
from pytest_specprobe.measure.statistics import SEED, FloatArray, Quantity, combine, resample
from pytest_specprobe.measure.throughput import SpeedRow

Measure = Literal["accept_length", "speedup", "tok_per_s"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Runs by one measure, best first.

    ``estimates`` holds each run's value over the shared prompts; ``lead`` the best run's value over each other's, a
    paired ratio (above 1); ``chances`` the share of resamples in which each run is best; ``winner`` is None unless
    every interval of ``lead`` is above 1. ``prompts`` counts the shared prompts.
    """

    measure: Measure
    order: tuple[str, ...]
    estimates: Mapping[str, Estimate]
    lead: Mapping[str, Estimate]
    chances: Mapping[str, float]
    winner: str | None
    prompts: int


def compare_acceptance(runs: Mapping[str, Sequence[PromptRow]], *, seed: int = SEED) -> Ranking:
    """Rank drafters (or settings) of one target by strict accept length; prompts dropped in any run count in none.

    :raises MeasurementError: for fewer than two runs, or fewer than two shared prompts.
    """
    kept = {name: [row for row in rows if row.dropped is None] for name, rows in runs.items()}
    shared = _shared(kept)

    def length(rows: Sequence[PromptRow]) -> tuple[FloatArray, FloatArray]:
        rounds = np.array([row.rounds for row in rows], dtype=np.float64)
        return rounds + np.array([row.accepted for row in rows], dtype=np.float64), rounds

    resamples = resample([row.workload for row in next(iter(shared.values()))], seed=seed)
    return _rank("accept_length", {name: resamples.ratio(*length(rows)) for name, rows in shared.items()})


def compare_speed(runs: Mapping[str, Sequence[SpeedRow]], *, seed: int = SEED) -> Ranking:
    """Rank runs by speedup where each had a baseline of its own (then drift between runs cancels), else by tok/s.

    Each run is over boots of its own: the drafter's server, and its baseline's.

    :raises MeasurementError: for fewer than two runs, or fewer than two shared prompts.
    """
    shared = _shared(runs)
    resamples = resample([row.workload for row in next(iter(shared.values()))], seed=seed)
    paired = all(row.baseline_decode_s is not None for rows in shared.values() for row in rows)

    def speed(rows: Sequence[SpeedRow], at: int) -> Quantity:
        rate = resamples.ratio(_column(rows, "tokens"), _column(rows, "decode_s"))
        rate = over_boots(rate, boots=2 if paired else 1, seed=seed + 2 + at)
        if not paired:
            return rate
        base = resamples.ratio(_column(rows, "baseline_tokens"), _column(rows, "baseline_decode_s"))
        return combine(np.divide, rate, base)

    return _rank(
        "speedup" if paired else "tok_per_s",
        {name: speed(rows, at) for at, (name, rows) in enumerate(shared.items())},
    )


class _Row(Protocol):
    @property
    def id(self) -> str: ...


R = TypeVar("R", bound=_Row)


def _shared(runs: Mapping[str, Sequence[R]]) -> dict[str, list[R]]:
    """Return each run's rows of the prompts that all runs have, in one order."""
    if len(runs) < 2:
        raise MeasurementError(
            f"{len(runs)} run cannot be compared", culprit="harness", fix="name at least two drafters or settings"
        )
    tables = {name: {row.id: row for row in rows} for name, rows in runs.items()}
    first, *others = tables.values()
    ids = [i for i in first if all(i in table for table in others)]
    if len(ids) < 2:
        raise MeasurementError(
            f"the runs share {len(ids)} measured prompts, so they cannot be paired",
            culprit="workload",
            fix="probe them with the same workload",
        )
    return {name: [table[i] for i in ids] for name, table in tables.items()}


def _column(rows: Sequence[SpeedRow], name: str) -> FloatArray:
    return np.array([getattr(row, name) for row in rows], dtype=np.float64)


def _rank(measure: Measure, values: Mapping[str, Quantity]) -> Ranking:
    order = sorted(values, key=lambda name: -values[name].value)
    draws = np.stack([values[name].draws for name in order])
    # Runs that are equal share a resample: two identical drafters have half a chance each.
    best = draws == draws.max(axis=0)
    chances = (best / best.sum(axis=0)).mean(axis=1)
    lead = {name: combine(np.divide, values[order[0]], values[name]).estimate() for name in order[1:]}
    return Ranking(
        measure=measure,
        order=tuple(order),
        estimates={name: values[name].estimate() for name in order},
        lead=lead,
        chances={name: float(chance) for name, chance in zip(order, chances, strict=True)},
        winner=order[0] if all(e.low > 1 for e in lead.values()) else None,
        prompts=values[order[0]].n,
    )
