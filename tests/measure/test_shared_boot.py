"""The figures of benchmarks/shared_boot.py, from requests made of counts."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.shared_boot import Side, across, compare
from pytest_specprobe.measure.request import Generation, Prompt

Make = Callable[..., Generation]
PROMPTS = [Prompt(id=f"p{i}", workload="w", text="t", input_ids=(1,)) for i in range(6)]


def side(make: Make, turns: list[str], name: str, *, round_s: float, cpu_s: float, shift: int = 0) -> Any:
    """A side whose turns are made up; everything that is computed of them is the benchmark's own."""
    made = Side(SimpleNamespace(), None, 2)  # type: ignore[arg-type]

    def turn(prompt: Prompt) -> None:
        turns.append(f"{name} {prompt.id}")
        odd = prompt.id == "p5" and shift
        made.done.append((make(prompt.id, [1, 0, 2 - bool(odd)], depth=2, round_s=round_s), cpu_s))

    return SimpleNamespace(turn=turn, done=made.done, steps=2)


def test_two_ratios_paired_by_prompt_and_every_answer_compared(make: Make) -> None:
    turns: list[str] = []
    shared = side(make, turns, "shared", round_s=0.02, cpu_s=1.1, shift=1)
    alone = side(make, turns, "alone", round_s=0.01, cpu_s=1.0)
    got = compare(shared, alone, PROMPTS, repeats=2)
    assert got["requests"] == 12
    assert got["identical"] == 10
    assert got["tok_per_s"]["value"] == pytest.approx(0.5, rel=0.05)
    assert got["cpu_s"]["value"] == pytest.approx(1.1, rel=0.05)
    assert turns[:6] == ["shared p0", "alone p0", "shared p0", "alone p0", "alone p1", "shared p1"]
    assert turns[14:18] == ["alone p0", "shared p0", "shared p1", "alone p1"]  # the order turns over


def test_ratios_over_boots_are_as_wide_as_the_boots_differ() -> None:
    def row(value: float) -> dict[str, Any]:
        ratio = {"value": value, "low": value, "high": value, "n": 12}
        return {
            "steps": 2,
            "tok_per_s": ratio,
            "cpu_s": ratio,
            "requests": 3,
            "rounds": 2,
            "tokens": 9,
            "identical": 3,
        }

    got = across([row(0.5), row(2.0)])
    assert got["tok_per_s"]["value"] == pytest.approx(1.0)
    assert (got["tok_per_s"]["low"] < 0.01, got["tok_per_s"]["n"], got["identical"]) == (True, 2, 6)
    near = across([row(0.99), row(1.01), row(1.0), row(1.0)])["cpu_s"]
    assert 0.98 < near["low"] < near["value"] < near["high"] < 1.02
