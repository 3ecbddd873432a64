"""Whole requests, from sending one to its last token: what a user waits for, first-token time included."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from pytest_specprobe.measure.request import Estimate, Generation
from pytest_specprobe.measure.throughput import KnownBaseline, declared, measure_throughput
from pytest_specprobe.report.build import throughput_of

Make = Callable[..., Generation]


def test_a_drafter_that_decodes_faster_may_answer_later(make: Make, plain: Make) -> None:
    """40 rounds of 30 ms for 80 tokens beside 80 steps of 16 ms: 1.07 x, and the first token comes 0.2 s later."""
    own = [make(f"p{i}", [1] * 40, depth=1, round_s=0.03, first_token_s=0.4) for i in range(6)]
    base = [plain(f"p{i}", 81, token_s=0.016) for i in range(6)]
    got = measure_throughput(own, baseline=base)
    assert got.speedup is not None
    assert got.speedup.low > 1
    assert got.end_to_end_tok_per_s == pytest.approx(81 / 1.6)
    assert got.baseline_end_to_end_tok_per_s == pytest.approx(81 / 1.48)
    assert got.end_to_end_speedup is not None
    assert got.end_to_end_speedup.value == pytest.approx(1.48 / 1.6)
    assert got.end_to_end_speedup.high < 1
    assert got.prompts[0].baseline_total_s == pytest.approx(1.48)
    entry = throughput_of(got)
    assert entry.end_to_end_speedup is not None
    assert entry.end_to_end_speedup.value == got.end_to_end_speedup.value
    assert entry.baseline_end_to_end_tok_per_s == got.baseline_end_to_end_tok_per_s


def test_it_is_paired_by_prompt(make: Make, plain: Make) -> None:
    """A machine that is slow for some prompts is so on both servers, first tokens too."""
    slow = np.random.default_rng(0).uniform(1, 2, 24)
    own = [make(f"p{i}", [1] * 30, depth=1, round_s=0.03 * s, first_token_s=0.3 * s) for i, s in enumerate(slow)]
    base = [plain(f"p{i}", 61, token_s=0.02 * s, first_token_s=0.2 * s) for i, s in enumerate(slow)]
    got = measure_throughput(own, baseline=base).end_to_end_speedup
    assert got is not None
    assert got.value == pytest.approx((0.2 + 1.2) / (0.3 + 0.9))
    assert got.high - got.low < 1e-9


def test_a_dropped_prompt_is_not_in_it_and_requests_of_a_prompt_are_summed(make: Make, plain: Make) -> None:
    own = [make(f"p{i}", [1] * 20, depth=1) for i in range(4)]
    base = [plain(f"p{i}", 41) for i in range(4)]
    own[0] = replace(own[0], start_s=own[0].start_s - 50)
    rest = measure_throughput(own[1:], baseline=base[1:])
    got = measure_throughput(own, baseline=base, dropped={"p0": "loops"})
    assert got.end_to_end_speedup == rest.end_to_end_speedup
    assert measure_throughput(own[1:] * 2, baseline=base[1:] * 2).end_to_end_speedup == rest.end_to_end_speedup


@pytest.mark.parametrize(
    "baseline",
    [None, declared(60.0), KnownBaseline(tok_per_s=Estimate(60.0, 58.0, 62.0, 24), source="stored", age_s=9.0)],
)
def test_a_baseline_that_is_a_number_has_no_first_token(make: Make, baseline: KnownBaseline | None) -> None:
    got = measure_throughput([make(f"p{i}", [1] * 20, depth=1) for i in range(3)], baseline=baseline)
    assert got.end_to_end_tok_per_s > 0
    assert got.end_to_end_speedup is None
    assert got.baseline_end_to_end_tok_per_s is None
    assert got.prompts[0].baseline_total_s is None
