"""Acceptance at a temperature: its own numbers, paired with the greedy ones, and only if anything was sampled."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from pytest_specprobe.measure.acceptance import measure_acceptance
from pytest_specprobe.measure.request import Generation
from pytest_specprobe.measure.sampled import check_sampled, measure_sampled
from pytest_specprobe.report.build import sampled_of

Make = Callable[..., Generation]


def test_it_is_strict_and_paired_with_the_greedy_pass(make: Make) -> None:
    greedy = [make(f"p{i}", [2, 1, 0, 1], depth=2) for i in range(6)]
    sampled = [make(f"p{i}", [1, 0, 0, 1], depth=2) for i in range(6)]
    found = measure_sampled(sampled, measure_acceptance(greedy, depth=2), temperature=0.7, dropped={})
    assert found.acceptance.accept_length.value == pytest.approx(1.5)
    assert found.over_greedy.value == pytest.approx(1.5 / 2.0)
    assert found.over_greedy.n == 6
    shown = sampled_of(found)
    assert (shown.temperature, shown.rounds, shown.accepted) == (0.7, 24, 12)


def test_what_is_dropped_greedily_is_dropped_here(make: Make) -> None:
    greedy = [make(f"p{i}", [1, 0], depth=2) for i in range(4)]
    sampled = [make(f"p{i}", [2, 2] if i == 0 else [1, 0], depth=2) for i in range(4)]
    dropped = {"p0": "target text loops"}
    found = measure_sampled(
        sampled, measure_acceptance(greedy, depth=2, dropped=dropped), temperature=1.0, dropped=dropped
    )
    assert found.acceptance.accept_length.value == pytest.approx(1.5)
    assert found.over_greedy.value == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("same", "other_start", "status"),
    [
        (6, 0, "fail"),
        (4, 2, "fail"),  # two texts begin with another token, so they could only go on differently
        (5, 0, "pass"),
        (2, 4, "pass"),  # too few to tell
    ],
)
def test_texts_that_go_on_greedily_were_not_sampled(make: Make, same: int, other_start: int, status: str) -> None:
    greedy = [make(f"p{i}", [1, 0], depth=2, output_ids=[7, 8, 9, 9]) for i in range(6)]
    starts = [[7, 8, 9, 9]] * same + [[6, 5, 5, 5]] * other_start
    starts += [[7, 8, 8, 8]] * (6 - len(starts))
    sampled = [replace(g, output_ids=tuple(ids)) for g, ids in zip(greedy, starts, strict=True)]
    assert check_sampled(sampled, greedy).status == status
