"""Resampling: determinism, pairing, strata, and the tail correction."""

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_specprobe.errors import MeasurementError
from pytest_specprobe.measure.request import Estimate
from pytest_specprobe.measure.statistics import combine, resample, student_quantile

STRATA = ["a"] * 10 + ["b"] * 14


def test_same_arguments_give_the_same_interval() -> None:
    x, y = np.arange(24, dtype=np.float64), np.full(24, 30.0)
    first = resample(STRATA).ratio(x, y).estimate()
    assert first == resample(STRATA).ratio(x, y).estimate()
    assert first != resample(STRATA, seed=1).ratio(x, y).estimate()


def test_every_stratum_keeps_its_weight_in_every_resample() -> None:
    weights = resample(STRATA).weights
    assert np.allclose(weights[:, :10].sum(axis=1), 10)
    assert np.allclose(weights[:, 10:].sum(axis=1), 14)


def test_a_ratio_is_of_sums_not_a_mean_of_ratios() -> None:
    value = resample(["w"] * 2).ratio(np.array([1.0, 90.0]), np.array([1.0, 100.0])).value
    assert value == pytest.approx(91 / 101)


def test_a_stratum_without_spread_adds_no_width() -> None:
    """Heterogeneity between workloads is not sampling error: the mix is fixed."""
    x = np.array([10.0] * 10 + [90.0] * 14)
    estimate = resample(STRATA).ratio(x, np.full(24, 100.0)).estimate()
    assert estimate.low == pytest.approx(estimate.high)


def test_differences_are_paired() -> None:
    rng = np.random.default_rng(0)
    ease = rng.uniform(0, 50, 24)
    r = resample(["w"] * 24)
    a, b = r.ratio(ease + 5, np.full(24, 60.0)), r.ratio(ease, np.full(24, 60.0))
    difference = combine(np.subtract, a, b).estimate()
    assert difference.low == pytest.approx(5 / 60)
    assert difference.high == pytest.approx(5 / 60)
    assert a.estimate().low < b.estimate().high  # unpaired, the two could not be told apart


def test_the_most_common_column_is_chosen_anew_in_each_resample() -> None:
    counts = np.zeros((24, 2))
    counts[:12, 0], counts[12:, 1] = 10, 9
    share = resample(["w"] * 24).largest_share(counts, np.full(24, 20.0))
    assert share.value == pytest.approx(120 / 480)
    assert float(share.draws.min()) >= 0.2  # whichever is rarer here, the other one is then more common
    assert float(share.draws.max()) <= 0.5
    assert (share.draws > share.value).mean() > 0.3


def test_single_prompts_share_a_stratum() -> None:
    weights = resample(["a", "b", "c", "d", "d", "d"]).weights
    assert np.allclose(weights[:, :3].sum(axis=1), 3)
    assert weights[:, 0].std() > 0


def test_one_single_prompt_joins_the_largest_workload() -> None:
    weights = resample(["a", "d", "d", "d", "e", "e"]).weights
    assert np.allclose(weights[:, :4].sum(axis=1), 4)
    assert weights[:, 0].std() > 0


@pytest.mark.parametrize("strata", [[], ["a"]])
def test_fewer_than_two_prompts_make_no_interval(strata: list[str]) -> None:
    with pytest.raises(MeasurementError, match="no interval"):
        resample(strata)


def test_an_empty_denominator_is_refused() -> None:
    with pytest.raises(MeasurementError, match="denominator"):
        resample(["w"] * 2).ratio(np.ones(2), np.array([0.0, 1.0]))


def test_a_known_number_keeps_its_own_interval() -> None:
    known = Estimate(80.0, 76.0, 84.2, 24)
    got = resample(["w"] * 400, replicates=40_000).known(known).estimate()
    assert got.value == 80.0
    assert got.low == pytest.approx(76.0, rel=0.01)
    assert got.high == pytest.approx(84.2, rel=0.01)
    exact = resample(["w"] * 24).known(Estimate(82.0, 82.0, 82.0, 0)).estimate()
    assert (exact.low, exact.high) == (82.0, 82.0)


@pytest.mark.parametrize(
    ("freedom", "expected"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (5, 2.5706), (19, 2.0930), (23, 2.0687), (1000, 1.9623)],
)
def test_students_quantile(freedom: int, expected: float) -> None:
    z = NormalDist().inv_cdf(0.975)
    assert student_quantile(z, freedom) == pytest.approx(expected, rel=0.008)
    if freedom > 10:
        assert student_quantile(z, freedom) == pytest.approx(expected, abs=1e-4)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 50), st.integers(1, 60)), min_size=2, max_size=30),
    st.integers(0, 10),
)
def test_an_interval_contains_its_value_and_stays_in_range(rows: list[tuple[str, int, int]], seed: int) -> None:
    x = np.array([min(a, r) for _, a, r in rows], dtype=np.float64)
    y = np.array([r for _, _, r in rows], dtype=np.float64)
    e = resample([w for w, _, _ in rows], seed=seed, replicates=200).ratio(x, y).estimate()
    assert 0 <= e.low <= e.value <= e.high <= 1
    assert e.n == len(rows)
