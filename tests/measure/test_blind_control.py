"""The drafter against its blind control: at the same places, and by accept length."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from pytest_specprobe.decide.verdict import decide, evidence
from pytest_specprobe.measure.acceptance import measure_acceptance
from pytest_specprobe.measure.request import Generation
from pytest_specprobe.measure.round_starts import Places, first_drafts, same_places
from pytest_specprobe.profiles import Gate
from pytest_specprobe.report.build import acceptance_of
from tests.measure.stretches import DEPTH, probe

Make = Callable[..., Generation]


@pytest.mark.parametrize("seed", range(8))
def test_a_drafter_that_is_better_at_every_token_is_ahead_of_its_control(seed: int) -> None:
    """Its rounds skip the easy stretches, where the control's start: over all rounds it reads 0.08 less."""
    got = probe((0.98, 0.10), (0.88, 0.05), seed=seed)
    assert got.blind is not None
    assert got.by_position[0].value - got.blind.value < -0.05
    assert got.margin.low > 0
    assert got.same_places is not None
    assert got.same_places.p1.value - got.same_places.blind.value == pytest.approx(got.margin.value)
    assert decide(evidence(got), gate=Gate()).candidates != ("uncorrelated",)


def test_a_drafter_that_reads_as_much_as_its_control_is_not_ahead() -> None:
    """Of 40 such probes one or two are shown to be ahead by luck, as of any interval of 95 %."""
    ahead = 0
    for seed in range(40):
        got = probe((0.9, 0.1), (0.9, 0.1), seed=seed, chain=DEPTH)
        ahead += decide(evidence(got), gate=Gate()).candidates != ("uncorrelated",)
    assert ahead <= 4


def test_places_are_the_rounds_that_both_started_on_the_same_text(make: Make) -> None:
    own = make("a", [2, 0, 1, 3], depth=3, trimmed=3)  # starts at 1, 4, 5, 7; ends after 8
    control = make("a", [0, 0, 1, 0, 1], depth=3, trimmed=1)  # starts at 1, 2, 3, 5, 6... ends after 7
    assert first_drafts(own) == {1: True, 4: False, 5: True, 7: True}
    assert first_drafts(control) == {1: False, 2: False, 3: True, 5: False, 6: True}
    assert same_places([own], [control]) == Places(rounds=2, hits=2, blind_hits=0)
    assert same_places([own, own], [control, control]) == Places(rounds=4, hits=4, blind_hits=0)


def test_texts_that_part_are_compared_up_to_there(make: Make) -> None:
    own = make("a", [0, 0, 0, 0], depth=1)
    ids = (*own.output_ids[:3], 7, 8)
    control = make("a", [0, 0, 0, 0], depth=1, output_ids=ids)
    assert same_places([own], [control]) == Places(rounds=2, hits=0, blind_hits=0)


def test_arrivals_of_several_rounds_hide_where_rounds_start(make: Make) -> None:
    own = make("a", [1, 0, 1], depth=1)
    joined = replace(own, chunk_tokens=(1, 3, 2))
    assert first_drafts(joined) == {}
    rest = [make(f"p{i}", [1, 0, 1] * 9, depth=1) for i in range(12)]
    blind = [make(f"p{i}", [0, 1, 0] * 9, depth=1, output_ids=g.output_ids) for i, g in enumerate(rest)]
    got = measure_acceptance([joined, *rest], depth=1, blind=[own, *blind])
    assert got.same_places is not None
    assert got.prompts[0].same_places == Places(rounds=0, hits=0, blind_hits=0)


def test_where_no_places_are_known_all_rounds_are_compared(make: Make) -> None:
    own = [make(f"p{i}", [1] * 10 + [0] * 10, depth=1) for i in range(4)]
    blind = [make(f"p{i}", [1] * 4 + [0] * 16, depth=1) for i in range(4)]
    joined = [replace(g, chunk_tokens=(1, g.completion_tokens - 1)) for g in own]
    got = measure_acceptance(joined, depth=1, blind=blind)
    assert got.same_places is None
    assert got.margin.value == pytest.approx(0.5 - 0.2)


def test_accept_lengths_are_compared_too(make: Make) -> None:
    own = [make(f"p{i}", [0, 2, 0, 1], depth=2) for i in range(4)]
    blind = [make(f"p{i}", [1, 0, 0, 1], depth=2) for i in range(4)]
    got = measure_acceptance(own, depth=2, blind=blind)
    assert got.blind_accept_length is not None
    assert got.length_margin is not None
    assert got.blind_accept_length.value == pytest.approx(1.5)
    assert got.length_margin.value == pytest.approx(0.25)
    common = [replace(g, output_ids=(7,) * 5 + g.output_ids[5:]) for g in own]
    floored = measure_acceptance(common, depth=2, blind=blind).length_margin
    assert floored is not None
    assert floored.value == pytest.approx(1.75 - (1 + 5 / 8))
    entry = acceptance_of(got)
    assert entry.length_margin is not None
    assert entry.prompts[0].blind_accepted == 2
    assert measure_acceptance(own, depth=2).length_margin is None
