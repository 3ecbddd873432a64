"""How many tokens of a text the target would not have said, and how many more with a drafter than without."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_specprobe.measure.checks.greedy import severity_of
from pytest_specprobe.measure.checks.odd_tokens import NEAR_TIE, Excess, Reading, count_odd, measure_excess

TRIALS = 60
Gaps = st.lists(st.floats(0, 10), max_size=20)


@given(st.lists(Gaps, max_size=6))
def test_a_count_is_one_of_places(texts: list[list[float]]) -> None:
    readings = [Reading(f"p{i}", "w", tuple(gaps)) for i, gaps in enumerate(texts)]
    odd = count_odd(readings, near_tie=NEAR_TIE)
    assert odd.odd == sum(gap >= NEAR_TIE for gaps in texts for gap in gaps)
    assert (odd.texts, odd.tokens) == (len(texts), sum(map(len, texts)))
    assert odd.rate is None if odd.tokens == 0 else odd.rate == odd.odd / odd.tokens


@given(st.lists(st.tuples(Gaps.filter(bool), Gaps.filter(bool)), min_size=2, max_size=8))
def test_the_difference_changes_its_sign_with_the_sides(texts: list[tuple[list[float], list[float]]]) -> None:
    own, plain = ([Reading(f"p{i}", "w", tuple(pair[side])) for i, pair in enumerate(texts)] for side in (0, 1))
    there, back = (measure_excess(a, b, near_tie=NEAR_TIE) for a, b in ((own, plain), (plain, own)))
    assert there is not None
    assert back is not None
    assert (there.more.value, there.more.low) == pytest.approx((-back.more.value, -back.more.high))
    assert (there.drafter, there.baseline) == (back.baseline, back.drafter)
    same = measure_excess(own, own, near_tie=NEAR_TIE)
    assert same is not None
    assert (same.more.low, same.more.high) == (0, 0)


def test_only_prompts_of_both_sides_are_compared() -> None:
    own = [Reading(name, "w", (9.0, 0.0)) for name in ("a", "b", "c", "empty")]
    plain = [Reading(name, "w", (0.0, 0.0)) for name in ("b", "c", "d")] + [Reading("empty", "w", ())]
    excess = measure_excess(own, plain, near_tie=NEAR_TIE)
    assert excess is not None
    assert (excess.drafter.texts, excess.more.value) == (2, 0.5)
    assert measure_excess(own, plain[:1], near_tie=NEAR_TIE) is None


def simulated(rng: np.random.Generator, plain: float, drafter: float, *, prompts: int, tokens: int) -> Excess:
    """Texts of prompts that differ in how often the arithmetic flips a token there (gamma, coefficient 1)."""
    sides: tuple[list[Reading], list[Reading]] = ([], [])
    for i in range(prompts):
        length, prone = int(rng.integers(tokens // 2, tokens + 1)), rng.gamma(1.0)
        for readings, rate in zip(sides, (drafter, plain), strict=True):
            gaps = np.where(rng.random(length) < rate * prone, 1.0, 0.0)
            readings.append(Reading(f"p{i}", "ab"[i % 2], tuple(gaps)))
    excess = measure_excess(*sides, near_tie=NEAR_TIE)
    assert excess is not None
    return excess


@pytest.mark.parametrize(("prompts", "tokens"), [(8, 80), (24, 128), (40, 128)])
@pytest.mark.parametrize("rate", [0.001, 0.006, 0.03])
def test_a_healthy_pair_is_not_accused(rate: float, prompts: int, tokens: int) -> None:
    """Bonferroni aside: of 60 pairs no error, and a warning as seldom as a 95 % interval misses on one side."""
    rng = np.random.default_rng(7)
    ends = Counter(
        severity_of(simulated(rng, rate, rate, prompts=prompts, tokens=tokens), None) for _ in range(TRIALS)
    )
    assert ends["error"] == 0
    assert ends["warning"] <= 5


@pytest.mark.parametrize(("prompts", "tokens", "wrong"), [(8, 80, 0.25), (24, 128, 0.06), (40, 128, 0.05)])
def test_a_drafter_whose_texts_the_target_would_not_say_is(prompts: int, tokens: int, wrong: float) -> None:
    """Simulated acceptance makes up a quarter of a text; with more prompts far less is seen."""
    rng = np.random.default_rng(8)
    ends = Counter(
        severity_of(simulated(rng, 0.006, wrong, prompts=prompts, tokens=tokens), None) for _ in range(TRIALS)
    )
    assert ends["error"] >= 0.95 * TRIALS
