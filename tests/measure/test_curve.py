"""Concurrency curves: where speculation stops paying."""

import json
from collections.abc import Callable

import pytest

from pytest_specprobe.measure.curve import curve
from pytest_specprobe.measure.request import Generation
from pytest_specprobe.measure.throughput import Throughput, measure_throughput
from pytest_specprobe.report.build import throughput_of

Make = Callable[..., Generation]


def level(make: Make, plain: Make, concurrency: int, *, token_s: float | None) -> Throughput:
    own = [make(f"p{i}", [1] * 20, depth=1, round_s=0.02) for i in range(4)]
    base = None if token_s is None else [plain(f"p{i}", 41, token_s=token_s) for i in range(4)]
    wall = None if base is None else 2.0
    return measure_throughput(own, baseline=base, concurrency=concurrency, wall_s=1.0, baseline_wall_s=wall)


def test_it_pays_up_to_a_level(make: Make, plain: Make) -> None:
    passes = [level(make, plain, c, token_s=t) for c, t in ((16, 0.012), (1, 0.015), (8, 0.009), (4, 0.011))]
    got = curve(passes)
    assert [p.concurrency for p in got.points] == [1, 4, 8, 16]
    assert got.pays_up_to == 4  # at 8 it does not; that 16 would again does not make 16 the answer
    data = throughput_of(got.points[0], got).curve
    assert data is not None
    json.dumps(data[0].document(), allow_nan=False)
    assert data[0].aggregate_tok_per_s == pytest.approx(164)
    assert data[0].aggregate_speedup == pytest.approx(2.0)


def test_without_a_baseline_nothing_pays(make: Make, plain: Make) -> None:
    got = curve([level(make, plain, 1, token_s=None)])
    assert got.pays_up_to is None
    assert got.points[0].speedup is None
    assert got.points[0].aggregate_speedup is None


def test_a_level_twice_is_refused(make: Make, plain: Make) -> None:
    with pytest.raises(ValueError, match="same concurrency"):
        curve([level(make, plain, 1, token_s=None)] * 2)
