"""Looping texts: found whatever the period, and real text left alone."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_specprobe.measure.checks.loops import loop, looping
from pytest_specprobe.measure.request import Generation

TEXT = """def read(path):
    with open(path) as file:
        for line in file:
            name, value = line.split("=")
            yield name.strip(), value.strip()

def write(path, values):
    with open(path, "w") as file:
        for name, value in values:
            file.write(name + "=" + value)
"""


def characters(text: str) -> list[int]:
    return [ord(c) for c in text]


@pytest.mark.parametrize("period", [1, 2, 7, 40, 100])
def test_a_text_that_ends_in_a_loop_is_found(period: int) -> None:
    start = list(range(500, 540))
    turns = max(3, -(-30 // period))
    assert loop(start + list(range(period)) * turns) == (
        f"ends in a loop of {period} tokens, repeated over {period * turns} tokens"
    )


def test_a_loop_that_drifts_is_found_by_its_runs() -> None:
    text: list[int] = []
    for i in range(12):
        text += [*range(20), 1000 + i]
    found = loop(text)
    assert found is not None
    assert "repeats" in found


@pytest.mark.parametrize(
    "text",
    [
        [],
        [5],
        [5] * 20,
        [*range(30), 9, 9, 9, 9, 9, 9, 9, 9],
        characters(TEXT),
        [*range(60), *range(60)],  # two turns are a repetition, not yet a loop
    ],
    ids=["empty", "one", "short run", "rule of dashes", "code", "twice"],
)
def test_text_that_does_not_loop(text: Sequence[int]) -> None:
    assert loop(text) is None


def test_random_text_over_few_tokens_does_not_loop() -> None:
    rng = np.random.default_rng(3)
    assert not any(loop(rng.integers(30, size=256).tolist()) for _ in range(50))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.lists(st.integers(0, 9), max_size=60))
def test_any_period_repeated_often_enough_is_a_loop(unit: list[int], start: list[int]) -> None:
    assert loop(start + unit * max(3, -(-26 // len(unit)))) is not None


def test_prompts_are_named(plain: Callable[..., Generation]) -> None:
    texts = [plain("good", 40), plain("bad", 60, output_ids=[1, 2] * 30)]
    assert list(looping(texts)) == ["bad"]
