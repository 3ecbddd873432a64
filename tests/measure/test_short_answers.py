"""Answers of a few tokens: timed to their own end, counted up to what was delivered, left out everywhere alike."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_specprobe.measure.acceptance import measure_acceptance
from pytest_specprobe.measure.checks.texts import check_short, dropped_prompts
from pytest_specprobe.measure.checks.trimmed import check_trimmed
from pytest_specprobe.measure.passes import acceptance_pass, natural_lengths, throughput_pass
from pytest_specprobe.measure.request import Generation, Prompt
from pytest_specprobe.measure.throughput import measure_throughput
from tests.measure.short_answers import DEPTH, ShortAnswers
from tests.support.requests import request_of

Make = Callable[..., Generation]


def test_short_answers_are_timed_to_their_own_end() -> None:
    prompts = [Prompt(id=f"p{i}", workload="w", text="", input_ids=(i,)) for i in range(60)]
    own, base = ShortAnswers(speculates=True), ShortAnswers(speculates=False)
    texts = acceptance_pass(own, prompts, max_new_tokens=256)
    runs = throughput_pass(own, base, prompts, new_tokens=natural_lengths(texts))
    assert {g.prompt_id: g.completion_tokens for g in runs.drafter} == {
        g.prompt_id: g.completion_tokens for g in texts
    }
    speed = measure_throughput(runs.drafter, baseline=runs.baseline, dropped=dropped_prompts(texts))
    assert speed.speedup is not None
    # a round of 25 ms delivers 1.2 tokens of 12 ms each, and as many texts end within a round
    assert speed.speedup.high < 1
    length = measure_acceptance(texts, depth=DEPTH, dropped=dropped_prompts(texts)).accept_length
    assert length.value == pytest.approx(speed.accept_length.value, rel=0.02)
    assert speed.accept_length.value == pytest.approx(speed.tokens_per_round, rel=1e-9)


def test_an_answer_too_short_to_time_is_in_no_number(make: Make, plain: Make) -> None:
    texts = [make("a", [], depth=2), make("b", [1], depth=2), *(make(f"p{i}", [1] * 8, depth=2) for i in range(4))]
    dropped = dropped_prompts(texts)
    assert {name: "too short to time" in why for name, why in dropped.items()} == {"a": True, "b": True}
    acceptance = measure_acceptance(texts, depth=2, dropped=dropped)
    base = [plain(g.prompt_id, g.completion_tokens) for g in texts]
    speed = measure_throughput(texts, baseline=base, dropped=dropped)
    assert acceptance.measured == speed.tok_per_s.n == 4
    assert {row.id for row in acceptance.dropped} == {"a", "b"}


@pytest.mark.parametrize(
    ("short", "status", "severity"), [(1, "pass", "warning"), (2, "fail", "warning"), (3, "fail", "error")]
)
def test_many_short_answers_are_said_and_a_workload_of_them_is_refused(
    make: Make, short: int, status: str, severity: str
) -> None:
    texts = [make(f"s{i}", [0], depth=2) for i in range(short)]
    texts += [make(f"p{i}", [1] * 8, depth=2) for i in range(4 - short)]
    finding = check_short(texts)
    assert (finding.status, finding.severity) == (status, severity)


@given(
    st.lists(st.integers(0, DEPTH), min_size=1, max_size=30),
    st.integers(0, DEPTH),
)
def test_what_was_delivered_is_counted_whatever_was_trimmed(accepted: list[int], cut: int) -> None:
    """Rounds are as many, and tokens after the first are the rounds and the drafts that were delivered."""
    cut = min(cut, accepted[-1])
    got = request_of("a", accepted, depth=DEPTH, trimmed=cut)
    histogram = got.delivered_histogram
    assert histogram is not None
    assert sum(histogram) == len(accepted)
    assert sum(i * count for i, count in enumerate(histogram)) == sum(accepted) - cut == got.delivered
    assert got.completion_tokens == 1 + len(accepted) + got.delivered
    whole = request_of("a", [*accepted[:-1], accepted[-1] - cut], depth=DEPTH)
    assert histogram == whole.histogram


@given(st.lists(st.integers(0, DEPTH), min_size=2, max_size=20), st.integers(0, DEPTH), st.integers(2, 5))
def test_arrivals_of_several_rounds_change_no_sum(accepted: list[int], cut: int, joined: int) -> None:
    """Where the last round did not arrive alone its drafts are not known; how many were delivered is."""
    cut = min(cut, accepted[-1])
    got = request_of("a", accepted, depth=DEPTH, trimmed=cut)
    tail = got.chunk_tokens[-joined:]
    got = replace(got, chunk_tokens=(*got.chunk_tokens[:-joined], sum(tail)))
    histogram = got.delivered_histogram
    assert histogram is not None
    assert sum(histogram) == len(accepted)
    assert all(count >= 0 for count in histogram)
    assert sum(i * count for i, count in enumerate(histogram)) == sum(accepted) - cut


@pytest.mark.parametrize(
    ("rounds", "trimmed", "status", "severity"),
    [(40, 0, "pass", "warning"), (40, 3, "pass", "warning"), (6, 3, "fail", "warning"), (2, 3, "fail", "error")],
)
def test_drafts_past_the_end_are_said_and_many_of_them_are_an_error(
    make: Make, rounds: int, trimmed: int, status: str, severity: str
) -> None:
    finding = check_trimmed([make(f"p{i}", [3] * rounds, depth=3, trimmed=trimmed) for i in range(4)])
    assert (finding.status, finding.severity) == (status, severity)
    assert finding.culprit == "workload"
