"""Throughput over concurrency: where speculation stops paying as the load grows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pytest_specprobe.measure.throughput import Throughput


@dataclass(frozen=True, slots=True)
class Curve:
    """Throughput passes at several concurrency levels, lowest first.

    Invariant: levels are distinct and ascending. A stream's own speed and the aggregate are different numbers, and
    speculation may pay for one and not for the other.
    """

    points: tuple[Throughput, ...]

    @property
    def pays_up_to(self) -> int | None:
        """Return the highest level up to which every level's whole speedup interval is above 1; None if none is."""
        level = None
        for point in self.points:
            if point.speedup is None or point.speedup.low <= 1:
                break
            level = point.concurrency
        return level

    def to_json(self) -> list[dict[str, Any]]:
        """Return ``throughput.curve``: per level, rates with their intervals."""
        return [
            {
                "concurrency": p.concurrency,
                "tok_per_s": p.tok_per_s.to_json(),
                "baseline_tok_per_s": p.baseline_tok_per_s and p.baseline_tok_per_s.to_json(),
                "speedup": p.speedup and p.speedup.to_json(),
                "aggregate_tok_per_s": p.aggregate_tok_per_s,
                "baseline_aggregate_tok_per_s": p.baseline_aggregate_tok_per_s,
                "aggregate_speedup": _ratio(p.aggregate_tok_per_s, p.baseline_aggregate_tok_per_s),
            }
            for p in self.points
        ]


def curve(passes: Sequence[Throughput]) -> Curve:
    """Return the curve of these passes.

    :raises ValueError: if two passes have the same concurrency.
    """
    points = sorted(passes, key=lambda p: p.concurrency)
    if len({p.concurrency for p in points}) < len(points):
        raise ValueError("two passes have the same concurrency")
    return Curve(tuple(points))


def _ratio(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a / b
