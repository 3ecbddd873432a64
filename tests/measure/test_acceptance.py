"""The acceptance pass: strict counts, floor, blind control, what is left out."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_specprobe.errors import MeasurementError
from pytest_specprobe.measure.acceptance import measure_acceptance
from pytest_specprobe.measure.request import Generation
from pytest_specprobe.report.build import acceptance_of

Make = Callable[..., Generation]


def several(make: Make, rounds: list[list[int]], *, depth: int = 2, **kwargs: object) -> list[Generation]:
    return [make(f"p{i}", r, depth=depth, **kwargs) for i, r in enumerate(rounds)]


def test_counts_are_pooled_and_strict(make: Make) -> None:
    """106 tokens in 43 rounds read 2.465 at SGLang; strictly it is 1 + 61/43: one more draft was cut off."""
    own = [make("a", [2] * 20 + [1] * 3, depth=2, trimmed=1), make("b", [1] * 19 + [0], depth=2)]
    got = measure_acceptance(own, depth=2)
    assert got.rounds == 43
    assert got.accepted == 61
    assert got.accept_length.value == pytest.approx(1 + 61 / 43)
    assert got.sglang_accept_length == pytest.approx(106 / 43)
    assert got.histogram == (2, 21, 20)
    assert [e.value for e in got.by_position] == pytest.approx([41 / 43, 20 / 43])
    assert got.conditional == pytest.approx((41 / 43, 20 / 41))
    assert got.accept_length.n == got.measured == 2


def test_a_drafter_of_which_nothing_is_accepted_reads_exactly_one(make: Make) -> None:
    """SGLang's own number is above 1 for it, which is why it is never gated."""
    got = measure_acceptance(several(make, [[0] * 15] * 3), depth=2)
    assert got.accept_length.value == 1.0
    assert got.accept_length.high == 1.0
    assert got.sglang_accept_length == pytest.approx(16 / 15)
    assert got.conditional == (0.0, None)
    assert got.margin.high < 0


def test_every_draft_accepted_reads_no_more_than_the_depth_allows(make: Make) -> None:
    own = several(make, [[0], [0], [2], [2, 2]])
    assert measure_acceptance(own, depth=2).accept_length.high == 3.0


def test_the_floor_is_the_most_common_tokens_share(make: Make) -> None:
    own = [
        make("a", [1] * 10, depth=1, output_ids=[7] * 11 + list(range(100, 110))),
        make("b", [0] * 19, depth=1, output_ids=[7] * 4 + list(range(200, 216))),
    ]
    got = measure_acceptance(own, depth=1)
    assert got.floor.value == pytest.approx(15 / 41)
    assert got.blind is None
    assert got.margin.value == pytest.approx(10 / 29 - 15 / 41)


def test_the_margin_is_over_the_better_of_blind_and_floor(make: Make) -> None:
    own = several(make, [[1] * 10 + [0] * 10] * 4, depth=1)
    blind = several(make, [[1] * 4 + [0] * 16] * 4, depth=1)
    got = measure_acceptance(own, depth=1, blind=blind)
    assert got.blind is not None
    assert got.blind.value == pytest.approx(0.2)
    assert got.margin.value == pytest.approx(6 / 14)  # of 14 places where both started a round; 0.3 over all rounds
    weak = several(make, [[1] + [0] * 199] * 4, depth=1, output_ids=[5] * 50 + list(range(300, 452)))
    got = measure_acceptance(own, depth=1, blind=weak)
    assert got.margin.value == pytest.approx(0.5 - got.floor.value)


def test_a_blind_control_equal_to_the_drafter_leaves_no_margin(make: Make) -> None:
    """However the prompts differ: the margin is paired, so its interval is zero, not wide."""
    rounds = [[1] * k + [0] * (40 - k) for k in range(24)]
    got = measure_acceptance(several(make, rounds, depth=1), depth=1, blind=several(make, rounds, depth=1))
    assert got.margin.low == got.margin.value == got.margin.high == 0


def test_dropped_prompts_are_in_no_number_but_in_the_rows(make: Make) -> None:
    own = [*several(make, [[1, 0, 2]] * 4), make("loop", [2] * 60, depth=2)]
    got = measure_acceptance(own, depth=2, dropped={"loop": "target text loops"})
    assert got == measure_acceptance(own, depth=2, dropped={"loop": "target text loops", "absent": "x"})
    assert got.rounds == 12
    assert got.measured == 4
    assert [row.id for row in got.dropped] == ["loop"]
    assert acceptance_of(got).dropped == {"loop": "target text loops"}
    assert got.prompts[-1].rounds == 60


def test_an_answer_of_one_token_has_no_round_and_is_left_out(make: Make, plain: Make) -> None:
    got = measure_acceptance([*several(make, [[1, 0]] * 3), plain("short", 1)], depth=2)
    assert got.measured == 3
    assert got.dropped[0].dropped == "no round: the answer is one token"


def test_repeats_of_a_prompt_are_one_prompt(make: Make) -> None:
    own = several(make, [[1, 0, 2], [0, 0, 0]])
    got = measure_acceptance(own + own, depth=2)
    assert got.measured == 2
    assert got.rounds == 12


def test_coverage_counts_output_tokens(make: Make) -> None:
    own = several(make, [[1, 0]] * 2, output_ids=[5, 5, 5, 9])
    assert measure_acceptance(own, depth=2, mapped_ids=[5, 6]).coverage == pytest.approx(0.75)
    assert measure_acceptance(own, depth=2).coverage is None


def test_workloads_and_contexts_are_shown_apart(make: Make) -> None:
    own = [make(f"a{i}", [2, 2], depth=2, workload="code") for i in range(2)]
    own += [make("long", [0, 0], depth=2, workload="docs", prompt_tokens=4095)]
    got = measure_acceptance(own, depth=2, drafter_length=4096)
    assert got.by_workload["code"].accept_length is not None
    assert got.by_workload["code"].accept_length.value == 3.0
    assert got.by_workload["docs"].accept_length is None  # one prompt has no interval
    assert [(c.start, c.stop, c.beyond_drafter) for c in got.by_context] == [(0, 512, False), (4096, 8192, True)]
    assert measure_acceptance(own, depth=2).by_context[0].beyond_drafter is None


def test_the_context_of_repeats_is_that_of_one_request(make: Make) -> None:
    own = several(make, [[1] * 20] * 2, prompt_tokens=480)
    (part,) = measure_acceptance(own + own, depth=2).by_context
    assert (part.start, part.stop) == (0, 512)


@pytest.mark.parametrize("fault", ["silent", "deep", "unpaired", "alone"])
def test_what_cannot_be_measured_is_an_error(make: Make, plain: Make, fault: str) -> None:
    own = several(make, [[1, 0]] * 3)
    blind, depth, words = None, 2, "no speculation"
    if fault == "silent":
        own[1] = plain("p1", 30)
    elif fault == "deep":
        depth, words = 1, "accepted 2 drafts in a round; the draft depth is 1"
        own = several(make, [[2, 0]] * 3)
    elif fault == "unpaired":
        blind, words = own[:2], "blind control"
    else:
        own, words = own[:1], "no interval"
    with pytest.raises(MeasurementError, match=words):
        measure_acceptance(own, depth=depth, blind=blind)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_identities_hold_for_any_histograms(make: Make, data: st.DataObject) -> None:
    depth = data.draw(st.integers(1, 5))
    lists = st.lists(st.integers(0, depth), min_size=1, max_size=20)
    rounds = data.draw(st.lists(lists, min_size=2, max_size=8))
    got = measure_acceptance(several(make, rounds, depth=depth), depth=depth)
    assert sum(got.histogram) == got.rounds
    assert sum(i * c for i, c in enumerate(got.histogram)) == got.accepted
    values = [e.value for e in got.by_position]
    assert values == sorted(values, reverse=True)
    assert sum(values) == pytest.approx(got.accept_length.value - 1)
    assert 1 <= got.accept_length.low <= got.accept_length.high <= depth + 1
    text = json.dumps(acceptance_of(got).document(), allow_nan=False)
    assert json.loads(text)["histogram"] == list(got.histogram)
