"""The fine-tuning outlook: the founding story, and the published facts it rests on."""

import json

import pytest

from pytest_specprobe.decide.breakeven import break_even
from pytest_specprobe.decide.outlook import outlook, published
from pytest_specprobe.report.build import outlook_of

FOUNDING = break_even(round_s=1.5 / 52, baseline_tok_per_s=82, depth=2)


def test_the_founding_story() -> None:
    got = outlook(FOUNDING, accept_length=1.5)
    assert got.acceptance == pytest.approx(0.366, abs=1e-3)
    profitable, better = got.goals
    assert (profitable.accept_length, profitable.acceptance) == pytest.approx((2.365, 0.771), abs=1e-3)
    assert (better.accept_length, better.acceptance) == pytest.approx((2.602, 0.861), abs=1e-3)
    assert got.round_s_for_training == pytest.approx(0.02705, abs=1e-5)
    text = " ".join(got.lines())
    assert "now: accept length 1.50, as 37% acceptance at every position gives" in text
    assert "below a round time of 27.1 ms; it is 28.8 ms" in text
    assert "a bound, not a promise" in text
    json.dumps(outlook_of(got).document(), allow_nan=False)


def test_published_drafters_of_that_depth_hardly_get_there() -> None:
    """Two steps: 2.33 to 2.52 on record against a break-even of 2.37."""
    got = outlook(FOUNDING, accept_length=1.5)
    assert {f.num_steps for f in got.published} == {2}
    assert (got.published[-1].accept_length, got.published[0].accept_length) == (2.33, 2.52)
    assert got.published_at_break_even == sum(f.accept_length >= FOUNDING.accept_length for f in got.published) == 3


def test_out_of_reach() -> None:
    got = outlook(break_even(round_s=0.05, baseline_tok_per_s=82, depth=2), accept_length=1.5)
    assert [goal.acceptance for goal in got.goals] == [None, None]
    assert "out of reach" in " ".join(got.lines())


def test_a_depth_without_facts_says_so() -> None:
    got = outlook(break_even(round_s=0.02, baseline_tok_per_s=82, depth=40), accept_length=1.5)
    assert got.published == ()
    assert outlook_of(got).document()["published"] == {
        "count": 0, "best": None, "median": None, "at_break_even": 0, "best_from": None
    }  # fmt: skip


def test_where_training_is_worth_it_nothing_is_said_about_round_time() -> None:
    got = outlook(break_even(round_s=0.02, baseline_tok_per_s=82, depth=2), accept_length=1.5)
    assert not any("worth it below" in line for line in got.lines())


def test_published_facts_are_possible_and_have_sources() -> None:
    facts = published()
    assert len(facts) > 100
    for fact in facts:
        assert 1 <= fact.accept_length <= fact.num_steps + 1
        assert fact.speedup is None or fact.speedup <= fact.accept_length
        assert fact.eagle_topk == 1
        assert fact.num_draft_tokens == fact.num_steps + 1
        assert fact.source
