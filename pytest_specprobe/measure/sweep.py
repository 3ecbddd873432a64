"""Several speculation settings on one target, and which of them is best.

Invariant: every arm ran the same prompts at the same lengths, in alternating turns (``passes.alternate``), since a
machine drifts by more than settings differ.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_specprobe.measure.acceptance import Acceptance, measure_acceptance
from pytest_specprobe.measure.compare import Ranking, compare_speed
from pytest_specprobe.measure.records import Generation
from pytest_specprobe.measure.throughput import BaselineSource, KnownBaseline, Throughput, measure_throughput


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One measured setting."""

    setting: str
    acceptance: Acceptance
    throughput: Throughput


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """All measured settings and their order by speed; ``ranking.winner`` is None where none beats each other one."""

    arms: tuple[Arm, ...]
    ranking: Ranking

    @property
    def best(self) -> Arm:
        """Return the fastest arm, whether or not it is surely so."""
        return next(arm for arm in self.arms if arm.setting == self.ranking.order[0])

    def to_json(self) -> list[dict[str, Any]]:
        """Return the ``sweep`` list of report.json, in the order asked for."""
        return [
            {
                "setting": arm.setting,
                "accept_length": arm.acceptance.accept_length.to_json(),
                "by_position": [e.to_json() for e in arm.acceptance.by_position],
                "tok_per_s": arm.throughput.tok_per_s.to_json(),
                "speedup": arm.throughput.speedup and arm.throughput.speedup.to_json(),
                "round_s": arm.throughput.round_s,
                "chance_best": self.ranking.chances[arm.setting],
                "winner": arm.setting == self.ranking.winner,
            }
            for arm in self.arms
        ]


def measure_sweep(
    runs: Mapping[str, Sequence[Generation]],
    *,
    depths: Mapping[str, int],
    baseline: Sequence[Generation] | KnownBaseline | None,
    baseline_source: BaselineSource = "boot",
    dropped: Mapping[str, str] | None = None,
) -> Sweep:
    """Turn a sweep's requests into estimates.

    :param runs: each setting's requests (without the baseline's).
    :param depths: each setting's draft depth.
    :raises MeasurementError: as the passes do, and for fewer than two settings.
    """
    arms = [
        Arm(
            setting=setting,
            acceptance=measure_acceptance(own, depth=depths[setting], dropped=dropped),
            throughput=measure_throughput(own, baseline=baseline, baseline_source=baseline_source, dropped=dropped),
        )
        for setting, own in runs.items()
    ]
    return Sweep(arms=tuple(arms), ranking=compare_speed({arm.setting: arm.throughput.prompts for arm in arms}))
