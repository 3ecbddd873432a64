"""Throughput over concurrency: where speculation stops paying as the load grows."""

from collections.abc import Sequence
from dataclasses import dataclass

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


def curve(passes: Sequence[Throughput]) -> Curve:
    """Return the curve of these passes.

    :raises ValueError: if two passes have the same concurrency.
    """
    points = sorted(passes, key=lambda p: p.concurrency)
    if len({p.concurrency for p in points}) < len(points):
        raise ValueError("two passes have the same concurrency")
    return Curve(tuple(points))
