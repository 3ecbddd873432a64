"""Sweeps: alternating arms, and the best setting with its interval."""

import json
from collections.abc import Callable

import pytest

from pytest_specprobe.errors import MeasurementError
from pytest_specprobe.measure.passes import Seat, alternate
from pytest_specprobe.measure.records import Generation, Prompt
from pytest_specprobe.measure.sweep import measure_sweep

Make = Callable[..., Generation]
PROMPTS = [Prompt(id=f"p{i}", workload="w", text=f"text {i}", input_ids=(i,)) for i in range(3)]


class OneBoot:
    """One server whose step count is switched between requests."""

    def __init__(self, make: Make) -> None:
        self._make = make
        self.steps = 0
        self.calls: list[str] = []

    def pin(self, steps: int) -> Callable[[], bool]:
        def switch() -> bool:
            self.steps = steps
            self.calls.append(f"={steps}")
            return False

        return switch

    def flush(self) -> None:
        self.calls.append("flush")

    def generate(
        self, prompt: Prompt, *, max_new_tokens: int, ignore_eos: bool, temperature: float = 0.0
    ) -> Generation:
        self.calls.append(f"{prompt.id}@{self.steps}")
        return self._make(prompt.id, [min(1, self.steps)] * (max_new_tokens // 2), depth=3)


def test_arms_alternate_and_each_is_switched_to_before_its_turn(make: Make) -> None:
    server = OneBoot(make)
    seats = {f"{k}/1/{k + 1}": Seat(server, server.pin(k)) for k in (1, 2, 3)}
    got = alternate(seats, PROMPTS, new_tokens=4, warmup=0)
    assert [c for c in server.calls if "@" in c] == [
        "p0@1", "p0@2", "p0@3", "p1@3", "p1@2", "p1@1", "p2@1", "p2@2", "p2@3"
    ]  # fmt: skip
    turns = [c for c in server.calls if "@" not in c]
    assert turns[:2] == ["=1", "flush"]  # a switch may leave half-written cache entries behind
    assert len(turns) == 2 * 3 + 2 * 9
    assert {name: len(t.generations) for name, t in got.items()} == {"1/1/2": 3, "2/1/3": 3, "3/1/4": 3}


def arms(make: Make, **round_s: float) -> dict[str, list[Generation]]:
    accepted = {"a": [1, 0], "b": [2, 1, 0], "c": [3, 1, 0, 0]}
    return {
        name: [make(f"p{i}", accepted[name] * 12, depth=3, round_s=s * (1 + i % 5 / 10)) for i in range(24)]
        for name, s in round_s.items()
    }


def test_the_best_setting_with_its_interval(make: Make, plain: Make) -> None:
    base = [plain(f"p{i}", 40, token_s=0.012 * (1 + i % 5 / 10)) for i in range(24)]
    got = measure_sweep(arms(make, a=0.020, b=0.022, c=0.03), depths=dict.fromkeys("abc", 3), baseline=base)
    assert got.best.setting == got.ranking.winner == "b"
    rows = json.loads(json.dumps(got.to_json(), allow_nan=False))
    assert [row["setting"] for row in rows] == ["a", "b", "c"]
    assert [row["winner"] for row in rows] == [False, True, False]
    assert rows[1]["speedup"]["value"] == pytest.approx(2 / 0.022 * 0.012)
    assert rows[0]["accept_length"]["value"] == pytest.approx(1.5)


def test_arms_that_tie_have_no_winner(make: Make) -> None:
    same = arms(make, a=0.02)["a"]
    got = measure_sweep({"x": same, "y": same}, depths={"x": 3, "y": 3}, baseline=None)
    assert got.ranking.winner is None
    assert {row["chance_best"] for row in got.to_json()} == {0.5}
    assert got.to_json()[0]["speedup"] is None


def test_one_setting_is_no_sweep(make: Make) -> None:
    with pytest.raises(MeasurementError, match="1 run"):
        measure_sweep(arms(make, a=0.02), depths={"a": 3}, baseline=None)
