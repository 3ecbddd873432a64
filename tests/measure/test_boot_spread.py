"""Boots are a sample too: no winner of a comparison is the luck of a boot.

The simulation shares no code with the package: prompts have their own speed, every boot its own factor.
"""

import math

import numpy as np
import pytest

from pytest_specprobe.measure.boot_spread import BOOT_SPREAD, over_boots
from pytest_specprobe.measure.compare import compare_speed
from pytest_specprobe.measure.request import Generation
from pytest_specprobe.measure.statistics import resample
from pytest_specprobe.measure.throughput import Throughput, measure_throughput

PROMPTS, TOKENS, PROBES = 30, 100, 150
ROUNDS = 40
BETWEEN_BOOTS = 0.02
SECONDS = 0.01


def requests(rng: np.random.Generator, speed: float, ease: np.ndarray, *, speculates: bool) -> list[Generation]:
    """One boot of a server that decodes ``speed`` times as fast as a plain one usually does."""
    boot = speed * math.exp(BETWEEN_BOOTS * rng.standard_normal())
    noise = np.exp((0.05 if speculates else 0.01) * rng.standard_normal(PROMPTS))
    return [_request(i, SECONDS * TOKENS * ease[i] * noise[i] / boot, speculates=speculates) for i in range(PROMPTS)]


def _request(i: int, seconds: float, *, speculates: bool) -> Generation:
    last, accepted = 1.0 + seconds, TOKENS - ROUNDS
    return Generation(
        prompt_id=f"p{i}", workload="w", prompt_tokens=20, cached_tokens=0, completion_tokens=TOKENS + 1,
        output_ids=(), text="", finish_reason="length",
        rounds=ROUNDS if speculates else None, accepted=accepted if speculates else None,
        histogram=(0, ROUNDS - 20, 20) if speculates else None,
        sglang_accept_length=None, start_s=0.9, first_s=1.0, last_s=last, first_tokens=1,
        chunk_tokens=(1, TOKENS), chunk_s=(1.0, last),
    )  # fmt: skip


def probed(rng: np.random.Generator, speedup: float = 1.0) -> Throughput:
    ease = np.exp(0.05 * rng.standard_normal(PROMPTS))
    own, plain = requests(rng, speedup, ease, speculates=True), requests(rng, 1.0, ease, speculates=False)
    return measure_throughput(own, baseline=plain)


def test_a_winner_is_rarely_the_luck_of_a_boot() -> None:
    """Two drafters that are equally fast. By prompts alone one of them was named in 56 % of these comparisons."""
    rng = np.random.default_rng(10)
    named = 0
    for _ in range(PROBES):
        ranking = compare_speed({name: probed(rng, 1.2).prompts for name in "ab"})
        named += ranking.winner is not None
    assert named / PROBES <= 0.08


def test_a_clear_winner_is_named() -> None:
    rng = np.random.default_rng(11)
    runs = {"a": probed(rng, 1.5).prompts, "b": probed(rng, 1.0).prompts}
    assert compare_speed(runs).winner == "a"


def test_draws_scatter_as_boots_do_and_the_value_stays() -> None:
    quantity = resample(["w"] * 24).ratio(np.ones(24), np.ones(24))
    scattered = over_boots(quantity, boots=2)
    assert scattered.value == 1.0
    assert np.log(scattered.draws).std() == pytest.approx(BOOT_SPREAD * math.sqrt(2), rel=0.05)
    assert (over_boots(quantity, boots=0).draws == quantity.draws).all()
