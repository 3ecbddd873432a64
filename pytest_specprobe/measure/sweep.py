"""Several speculation settings on one target, and which of them is best.

Invariant: a setting is compared only with requests that took turns with its own (``passes.alternate``), since a
machine drifts by more than settings differ; and whoever is picked as the best of many is read at intervals that hold
for all of them at once. With M settings every interval here has confidence 1 - 0.05 / M (Bonferroni): the chance that
*any* of them misses is at most 5 %, so picking the luckiest one wins nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pytest_specprobe.measure.acceptance import Acceptance, measure_acceptance
from pytest_specprobe.measure.request import Estimate, Generation
from pytest_specprobe.measure.statistics import CONFIDENCE, FloatArray, combine, resample
from pytest_specprobe.measure.throughput import (
    BaselineSource,
    KnownBaseline,
    SpeedRow,
    Throughput,
    measure_throughput,
)
from pytest_specprobe.profiles import Speculation

How = Literal["one-boot", "own-boot", "attached"]
PARITY_BOUND = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One setting's requests, and those that took turns with them.

    ``own`` are the requests of the profile's own setting in the same turns: on the same boot where it shares one.
    ``how`` is where the setting ran: pinned on a server that all chains share, on a server of its own, or on one that
    someone else runs. ``apart``: the own setting or the baseline did not fit beside it, and ran at another time.
    """

    setting: Speculation
    how: How
    requests: Sequence[Generation]
    own: Sequence[Generation]
    baseline: Sequence[Generation] | KnownBaseline | None
    apart: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One measured setting and its requests.

    ``over_own`` is its tok/s over the own setting's, paired by prompt; None for the own one.
    """

    setting: Speculation
    how: How
    acceptance: Acceptance
    throughput: Throughput
    over_own: Estimate | None
    apart: bool
    requests: tuple[Generation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """Is a setting as fast on the shared boot as on a boot of its own? Measured on the own setting.

    In turns where both boots fit beside each other, else against the probe's own pass.

    ``ratio`` is shared tok/s over separate tok/s (a single claim: 95 %). ``identical`` of ``compared`` prompts had
    the same tokens and the same accept histogram on both.
    """

    setting: Speculation
    ratio: Estimate
    identical: int
    compared: int

    @property
    def shown(self) -> bool:
        """Tell whether the whole interval is within ``PARITY_BOUND`` of 1."""
        return self.ratio.low >= 1 - PARITY_BOUND and self.ratio.high <= 1 + PARITY_BOUND


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """All settings asked for: those measured, and why the others were not (``skipped``).

    ``settings`` are all M of them, the profile's ``own`` first; where the shared boot is not shown to be as fast, the
    own one's arm is from its own boot. ``fallback`` says why chains did not share one boot, None where they did or
    need not. ``crowded``: others used so much of the machine that no time of it decides.
    """

    own: Speculation
    settings: tuple[Speculation, ...]
    arms: tuple[Arm, ...]
    skipped: Mapping[Speculation, str]
    parity: Parity | None
    fallback: str | None
    crowded: bool = False

    def comparable(self, arm: Arm) -> bool:
        """Tell whether its times may be held against another boot's: a shared boot's only at shown parity.

        A boot of several step counts can be slow at some of them and not at others (SGLang 0.5.17 on CUDA: 0.74), so
        that its settings cannot be ranked among themselves either.
        """
        return arm.how != "one-boot" or (self.parity is not None and self.parity.shown)

    @property
    def best(self) -> Arm:
        """Return the fastest setting of those whose times can be compared, surely so or not."""
        arms = [arm for arm in self.arms if self.comparable(arm)]
        return max(arms, key=lambda arm: 1.0 if arm.over_own is None else arm.over_own.value)

    @property
    def surely_better(self) -> bool:
        """Tell whether the best setting is surely faster than the profile's own."""
        lead = self.best.over_own
        return lead is not None and lead.low > 1 and not self.crowded


def simultaneous(settings: int) -> float:
    """Return the confidence of each of ``settings`` intervals that hold at once with 95 % (Bonferroni)."""
    return 1 - (1 - CONFIDENCE) / settings


def measure_arm(
    trial: Trial,
    *,
    own: Speculation,
    settings: int,
    concurrency: int = 1,
    baseline_source: BaselineSource = "boot",
    dropped: Mapping[str, str] | None = None,
) -> Arm:
    """Turn one setting's requests into estimates at the confidence of ``settings`` simultaneous ones.

    :param own: the profile's own setting.
    :raises MeasurementError: as the passes do.
    """
    confidence = simultaneous(settings)
    speed = measure_throughput(
        trial.requests,
        baseline=trial.baseline,
        baseline_source=baseline_source,
        dropped=dropped,
        concurrency=concurrency,
        confidence=confidence,
    )
    reference = measure_throughput(trial.own, baseline=None, dropped=dropped)
    return Arm(
        setting=trial.setting,
        how=trial.how,
        acceptance=measure_acceptance(
            trial.requests, depth=trial.setting.depth, dropped=dropped, confidence=confidence
        ),
        throughput=speed,
        over_own=None if trial.setting == own else _ratio(speed.prompts, reference.prompts, confidence=confidence),
        apart=trial.apart,
        requests=tuple(trial.requests),
    )


def measure_parity(
    setting: Speculation,
    shared: Sequence[Generation],
    alone: Sequence[Generation],
    *,
    dropped: Mapping[str, str] | None = None,
) -> Parity:
    """Compare one setting on the shared boot with itself on a boot of its own; both took turns.

    :raises MeasurementError: as the throughput pass does.
    """
    left_out = dropped or {}
    rows = [measure_throughput(side, baseline=None, dropped=dropped).prompts for side in (shared, alone)]
    pairs = [(g, h) for g, h in zip(shared, alone, strict=True) if g.prompt_id not in left_out]
    return Parity(
        setting=setting,
        ratio=_ratio(*rows, confidence=CONFIDENCE),
        identical=sum((g.output_ids, g.histogram) == (h.output_ids, h.histogram) for g, h in pairs),
        compared=len(pairs),
    )


def _ratio(one: Sequence[SpeedRow], other: Sequence[SpeedRow], *, confidence: float) -> Estimate:
    """Return the first's tok/s over the second's; the same prompts in the same order."""
    resamples = resample([row.workload for row in one], confidence=confidence)
    return combine(np.divide, *(resamples.ratio(*_columns(rows)) for rows in (one, other))).estimate()


def _columns(rows: Sequence[SpeedRow]) -> tuple[FloatArray, FloatArray]:
    return (
        np.array([row.tokens for row in rows], dtype=np.float64),
        np.array([row.decode_s for row in rows], dtype=np.float64),
    )
