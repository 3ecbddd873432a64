"""The throughput pass: pairing, break-even, latency, baselines from elsewhere."""

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_specprobe.errors import MeasurementError
from pytest_specprobe.measure.request import Estimate, Generation
from pytest_specprobe.measure.throughput import KnownBaseline, declared, measure_throughput
from pytest_specprobe.report.build import throughput_of

Make = Callable[..., Generation]


def test_the_founding_run(make: Make, plain: Make) -> None:
    """Round time 28.8 ms at accept length 1.5 against 82 tok/s: 52 tok/s, and break-even at 2.37."""
    own = [make(f"p{i}", [0, 1] * 40, depth=2, round_s=1.5 / 52) for i in range(24)]
    base = [plain(f"p{i}", 121, token_s=1 / 82) for i in range(24)]
    got = measure_throughput(own, baseline=base)
    assert got.tok_per_s.value == pytest.approx(52)
    assert got.baseline_tok_per_s is not None
    assert got.baseline_tok_per_s.value == pytest.approx(82)
    assert got.baseline_source == "boot"
    assert got.round_s == pytest.approx(0.02885, abs=1e-5)
    assert got.break_even_length is not None
    assert got.break_even_length.value == pytest.approx(2.365, abs=1e-3)
    assert got.speedup is not None
    assert got.speedup.value == pytest.approx(1.5 / got.break_even_length.value)
    assert got.accept_length.value == pytest.approx(1.5)
    assert got.end_to_end_tok_per_s == pytest.approx(121 / (0.2 + 80 * 1.5 / 52))
    row = got.prompts[0]
    assert (row.tokens, row.rounds, row.accepted, row.baseline_tokens) == (120, 80, 40, 120)
    assert row.total_s == pytest.approx(row.decode_s + 0.2)


def test_repeats_and_order_do_not_matter(make: Make, plain: Make) -> None:
    own = [make(f"p{i}", [0, 1, 2] * (i + 3), depth=2, round_s=0.02 + 0.001 * i) for i in range(6)]
    base = [plain(f"p{i}", 20 + i) for i in range(6)]
    once = measure_throughput(own, baseline=base)
    twice = measure_throughput(own + own, baseline=base + base)
    assert twice.speedup == once.speedup
    assert twice.prompts[0].requests == 2
    assert measure_throughput(own, baseline=base[::-1]).speedup == once.speedup


def test_a_machine_that_is_slow_for_some_prompts_cancels_out(make: Make, plain: Make) -> None:
    """Interleaved pairs share the drift, so the speedup is known far better than either speed."""
    slow = np.random.default_rng(0).uniform(1, 2, 24)
    own = [make(f"p{i}", [0, 1] * 30, depth=2, round_s=0.03 * slow[i]) for i in range(24)]
    base = [plain(f"p{i}", 91, token_s=0.025 * slow[i]) for i in range(24)]
    got = measure_throughput(own, baseline=base)
    assert got.speedup is not None
    assert got.speedup.value == pytest.approx(1.25)
    assert got.speedup.high - got.speedup.low < 1e-9
    assert got.tok_per_s.high / got.tok_per_s.low > 1.1


def test_tokens_coalesced_into_the_first_arrival_do_not_speed_up_rounds(make: Make) -> None:
    own = [make(f"p{i}", [1] * 40, depth=1, round_s=0.03) for i in range(4)]
    late = [replace(g, first_tokens=9, first_s=g.first_s + 4 * 0.03) for g in own]  # 4 rounds came with it
    got, whole = measure_throughput(late, baseline=None), measure_throughput(own, baseline=None)
    assert got.round_s == pytest.approx(whole.round_s)
    assert got.tok_per_s.value == pytest.approx(whole.tok_per_s.value)


def test_trimmed_drafts_are_not_delivered(make: Make, plain: Make) -> None:
    own = [make(f"p{i}", [2] * 10, depth=2, trimmed=2) for i in range(3)]
    got = measure_throughput(own, baseline=[plain(f"p{i}", 29) for i in range(3)])
    assert got.accept_length.value == pytest.approx(2.8)
    assert got.tokens_per_round == pytest.approx(2.8)
    assert got.prompts[0].accepted == 18
    assert got.speedup is not None
    assert got.break_even_length is not None
    assert got.speedup.value == pytest.approx(got.tokens_per_round / got.break_even_length.value)


def test_declared_and_stored_baselines(make: Make) -> None:
    own = [make(f"p{i}", [0, 1] * 40, depth=2, round_s=1.5 / 52) for i in range(24)]
    got = measure_throughput(own, baseline=declared(82.0))
    assert got.baseline_source == "declared"
    assert got.speedup is not None
    assert got.speedup.value == pytest.approx(52 / 82)
    assert got.speedup.high == pytest.approx(got.speedup.low)
    stored = KnownBaseline(tok_per_s=Estimate(82.0, 78.0, 86.2, 24), source="stored", age_s=3600.0)
    wide = measure_throughput(own, baseline=stored)
    assert wide.baseline_age_s == 3600.0
    assert wide.speedup is not None
    assert wide.speedup.low == pytest.approx(52 / 86.2, rel=0.02)


@pytest.mark.parametrize("then_s", [0.2 * 1.2, 0.2 / 1.2])
def test_a_stored_baseline_is_as_wide_as_the_machine_may_have_changed(make: Make, then_s: float) -> None:
    """First tokens came 1.2 times as late, or as early, when it was stored: today's baseline may be either."""
    own = [make(f"p{i}", [0, 1] * 40, depth=2, round_s=1.5 / 52) for i in range(24)]
    rate = Estimate(52.0, 51.0, 53.0, 24)
    got = measure_throughput(own, baseline=KnownBaseline(tok_per_s=rate, source="stored", first_token_s=then_s))
    assert got.speedup is not None
    assert got.speedup.low < 1 / 1.2 < 1.2 < got.speedup.high
    same = measure_throughput(own, baseline=KnownBaseline(tok_per_s=rate, source="stored", first_token_s=0.2))
    assert same.speedup is not None
    assert 0.95 < same.speedup.low < same.speedup.high < 1.05


def test_without_a_baseline_there_is_no_speedup(make: Make) -> None:
    got = measure_throughput([make(f"p{i}", [0, 1], depth=2) for i in range(2)], baseline=None)
    data = throughput_of(got).document()
    for name in ("speedup", "baseline_tok_per_s", "baseline_source", "break_even_length", "aggregate_tok_per_s"):
        assert data[name] is None
    assert throughput_of(got).latency.baseline is None


def test_latency_spreads_a_gap_over_its_tokens(make: Make) -> None:
    got = measure_throughput([make(f"p{i}", [2, 0], depth=2, round_s=0.03) for i in range(2)], baseline=None).latency
    assert got.first_token_s.p50 == pytest.approx(0.2)
    assert got.first_token_s.n == 2
    assert got.inter_token_s is not None
    assert got.inter_token_s.n == 8
    assert got.inter_token_s.p50 == pytest.approx(0.01)
    assert got.inter_arrival_s is not None
    assert got.inter_arrival_s.n == 4
    assert got.inter_arrival_s.p50 == pytest.approx(0.03)


def test_per_stream_and_aggregate_rates_are_different_numbers(make: Make, plain: Make) -> None:
    own = [make(f"p{i}", [1] * 20, depth=1) for i in range(4)]
    base = [plain(f"p{i}", 41) for i in range(4)]
    got = measure_throughput(own, baseline=base, concurrency=4, wall_s=2.0, baseline_wall_s=1.0)
    assert got.concurrency == 4
    assert got.aggregate_tok_per_s == pytest.approx(82)
    assert got.baseline_aggregate_tok_per_s == pytest.approx(164)
    assert got.tok_per_s.value == pytest.approx(2 / 0.03)
    dropped = measure_throughput(own, baseline=base, dropped={"p0": "loops"}, wall_s=2.0, baseline_wall_s=1.0)
    assert (dropped.aggregate_tok_per_s, dropped.baseline_aggregate_tok_per_s) == (82, 164)  # the wall has p0 too


@pytest.mark.parametrize("fault", ["one-sided", "no time", "one arrival", "silent"])
def test_what_cannot_be_measured_is_an_error(make: Make, plain: Make, fault: str) -> None:
    own = [make(f"p{i}", [0, 1], depth=2) for i in range(3)]
    base = [plain(f"p{i}", 4) for i in range(3)]
    words = "prompt p2 ran on only one of the two servers, and so did 0 more"
    if fault == "one-sided":
        base = base[:2]
    elif fault == "one arrival":
        own[0], words = replace(own[0], first_tokens=4), "no decode time: 4 tokens, 4 of them"
    elif fault == "no time":
        own[0], words = replace(own[0], last_s=own[0].first_s), "no decode time"
    else:
        own[0], words = plain("p0", 4), "no speculation"
    with pytest.raises(MeasurementError, match=words):
        measure_throughput(own, baseline=base)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_speedup_is_delivered_tokens_over_break_even(make: Make, plain: Make, data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 6))
    own, base = [], []
    for i in range(n):
        rounds = data.draw(st.lists(st.integers(0, 3), min_size=2, max_size=15))
        own.append(make(f"p{i}", rounds, depth=3, round_s=data.draw(st.floats(0.001, 0.2))))
        base.append(plain(f"p{i}", own[-1].completion_tokens, token_s=data.draw(st.floats(0.001, 0.2))))
    got = measure_throughput(own, baseline=base)
    assert got.speedup is not None
    assert got.break_even_length is not None
    assert got.speedup.value == pytest.approx(got.tokens_per_round / got.break_even_length.value)
    assert got.accept_length.value == pytest.approx(got.tokens_per_round)  # nothing was trimmed
    json.dumps(throughput_of(got).document(), allow_nan=False)
