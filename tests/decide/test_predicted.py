"""Brackets of shorter chains, against chains that are simulated at every length over the same text."""

import json
from typing import Any

import numpy as np
import pytest

from pytest_specprobe.decide.predicted import lower_length, predict_shorter
from pytest_specprobe.measure.acceptance import measure_acceptance
from pytest_specprobe.measure.request import Generation
from pytest_specprobe.measure.throughput import declared, measure_throughput
from pytest_specprobe.report.build import predicted_of


def chain(hits: Any, steps: int) -> list[int]:
    """Accepted drafts per round over a text whose token i is drafted right iff ``hits[i]``."""
    accepted, at = [], 1
    while at < len(hits):
        a = 0
        while a < steps and at + a < len(hits) and hits[at + a]:
            a += 1
        accepted.append(a)
        at += a + 1
    return accepted


def text(rng: np.random.Generator, *, bursts: bool, n: int = 40_000) -> Any:
    if not bursts:
        return rng.random(n) < 0.55
    easy = np.repeat(rng.random(n // 25 + 1) < 0.5, 25)[:n]
    return rng.random(n) < np.where(easy, 0.9, 0.2)


@pytest.mark.parametrize("bursts", [False, True])
def test_the_lower_estimate_is_low_and_not_far_off(bursts: bool) -> None:
    hits = text(np.random.default_rng(1), bursts=bursts)
    long = np.array(chain(hits, 6))
    positions = [float((long >= i).mean()) for i in range(1, 7)]
    for k in (1, 2, 3, 4, 5):
        real = 1 + float(np.mean(chain(hits, k)))
        low = lower_length(positions, steps=k)
        assert low <= real * 1.005
        assert low >= real * (0.85 if bursts else 0.98)
        assert real <= min(1 + long.mean(), k + 1) * 1.005
    if bursts:
        assert lower_length(positions, steps=1) < 0.97 * (1 + float(np.mean(chain(hits, 1))))


def request(i: int, accepted: list[int], depth: int) -> Generation:
    tokens = 1 + sum(a + 1 for a in accepted)
    return Generation(
        prompt_id=f"p{i}", workload="w", prompt_tokens=5, cached_tokens=0, completion_tokens=tokens,
        output_ids=tuple(range(tokens)), text="", finish_reason="length",
        rounds=len(accepted), accepted=sum(accepted),
        histogram=tuple(accepted.count(k) for k in range(depth + 1)), sglang_accept_length=None,
        start_s=0.0, first_s=0.1, last_s=0.1 + 0.03 * len(accepted), first_tokens=1, chunk_tokens=(), chunk_s=(),
    )  # fmt: skip


def test_brackets_of_one_run() -> None:
    own = [request(i, [0, 1, 3, 0, 2, 3] * 5, 3) for i in range(4)]
    acceptance = measure_acceptance(own, depth=3)
    throughput = measure_throughput(own, baseline=declared(60.0))
    one, two = predict_shorter(acceptance, throughput)
    assert (one.num_steps, two.num_steps) == (1, 2)
    assert one.accept_length_low == pytest.approx(1 + 4 / 6)
    assert two.accept_length_low == pytest.approx(1 + 4 / 6 + 3 / 6)
    assert one.accept_length_high == 2.0
    assert two.accept_length_high == pytest.approx(acceptance.accept_length.value)
    assert one.tok_per_s_low == pytest.approx((1 + 4 / 6) / 0.03)
    assert one.tok_per_s_high == pytest.approx(120)
    assert one.speedup_low == pytest.approx((1 + 4 / 6) / 0.03 / 60)
    assert one.can_pay is True
    json.dumps([predicted_of(p).document() for p in (one, two)], allow_nan=False)


def test_without_a_baseline_the_speed_is_open() -> None:
    own = [request(i, [0, 1, 2, 1], 2) for i in range(3)]
    (one,) = predict_shorter(measure_acceptance(own, depth=2))
    assert one.tok_per_s_low is one.tok_per_s_high is one.can_pay is None
    (one,) = predict_shorter(measure_acceptance(own, depth=2), measure_throughput(own, baseline=None))
    assert one.tok_per_s_low is not None
    assert one.speedup_high is None


def test_one_step_has_nothing_shorter() -> None:
    assert predict_shorter(measure_acceptance([request(i, [0, 1], 1) for i in range(2)], depth=1)) == ()
