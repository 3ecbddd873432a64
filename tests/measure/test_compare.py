"""Comparing runs: paired by prompt, and a winner only where the pairs say so."""

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from pytest_specprobe.errors import MeasurementError
from pytest_specprobe.measure.acceptance import measure_acceptance
from pytest_specprobe.measure.compare import compare_acceptance, compare_speed
from pytest_specprobe.measure.prompt_rows import PromptRow
from pytest_specprobe.measure.request import Generation
from pytest_specprobe.measure.throughput import SpeedRow, measure_throughput
from pytest_specprobe.report.build import as_model
from pytest_specprobe.report.model.report import Ranking as RankingModel

Make = Callable[..., Generation]


def drafter(make: Make, *, better: float, seed: int = 0, n: int = 24) -> tuple[PromptRow, ...]:
    """Prompts differ widely; ``better`` shifts every prompt's acceptance."""
    rng = np.random.default_rng(seed)
    ease = np.random.default_rng(99).uniform(0.1, 0.6, n)
    own = [
        make(f"p{i}", (rng.random((2, 120)) < ease[i] + better).cumprod(axis=0).sum(axis=0).tolist(), depth=2)
        for i in range(n)
    ]
    return measure_acceptance(own, depth=2).prompts


def test_a_difference_that_single_intervals_hide_is_seen_in_pairs(make: Make) -> None:
    got = compare_acceptance({"aq": drafter(make, better=0.0, seed=1), "scratch": drafter(make, better=0.08, seed=2)})
    assert got.order == ("scratch", "aq")
    assert got.winner == "scratch"
    assert got.lead["aq"].low > 1
    assert got.estimates["aq"].high > got.estimates["scratch"].low
    assert got.chances["scratch"] > 0.99
    json.dumps(as_model(RankingModel, got).document(), allow_nan=False)


def test_no_winner_between_equals(make: Make) -> None:
    """Drafters of the same quality are told apart in about one of twenty comparisons."""
    winners = [
        compare_acceptance(
            {"a": drafter(make, better=0.0, seed=2 * s), "b": drafter(make, better=0.0, seed=2 * s + 1)}
        ).winner
        for s in range(30)
    ]
    assert sum(w is not None for w in winners) <= 4


def test_the_same_run_twice_is_a_tie(make: Make) -> None:
    rows = drafter(make, better=0.0)
    got = compare_acceptance({"a": rows, "b": rows})
    assert got.winner is None
    assert got.chances == {"a": 0.5, "b": 0.5}


def test_only_prompts_that_all_measured_count(make: Make) -> None:
    a, b = drafter(make, better=0.0), list(drafter(make, better=0.3))
    b[0] = replace(b[0], dropped="target text loops")
    assert compare_acceptance({"a": a[:20], "b": b}).prompts == 19
    assert compare_acceptance({"a": a[::-1], "b": b}).winner == "b"


def test_a_winner_must_beat_each_other_run(make: Make) -> None:
    same = drafter(make, better=0.2)
    got = compare_acceptance({"low": drafter(make, better=0.0), "x": same, "y": same})
    assert got.winner is None
    assert got.lead["low"].low > 1
    assert got.order[-1] == "low"


def test_too_little_to_compare(make: Make) -> None:
    rows = drafter(make, better=0.0)
    with pytest.raises(MeasurementError, match="1 run"):
        compare_acceptance({"a": rows})
    with pytest.raises(MeasurementError, match="share 1 measured"):
        compare_acceptance({"a": rows[:5], "b": rows[4:]})


def speeds(make: Make, plain: Make, *, round_s: float, slow: float = 1.0, base: bool = True) -> tuple[SpeedRow, ...]:
    own = [make(f"p{i}", [0, 1, 2] * 12, depth=2, round_s=round_s * slow) for i in range(24)]
    pairs = [plain(f"p{i}", own[i].completion_tokens, token_s=0.012 * slow) for i in range(24)]
    return measure_throughput(own, baseline=pairs if base else None).prompts


def test_speed_is_compared_by_speedup_so_that_a_slow_hour_does_not_lose(make: Make, plain: Make) -> None:
    """B is the faster setting, but its boot met a machine that was 30 % slower."""
    a, b = speeds(make, plain, round_s=0.030), speeds(make, plain, round_s=0.027, slow=1.3)
    got = compare_speed({"a": a, "b": b})
    assert (got.measure, got.winner) == ("speedup", "b")
    assert got.lead["a"].value == pytest.approx(30 / 27)
    without = compare_speed({"a": speeds(make, plain, round_s=0.030, base=False), "b": b})
    assert (without.measure, without.winner) == ("tok_per_s", "a")
