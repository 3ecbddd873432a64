"""Sweeps: alternating arms, intervals that hold for all of them, and a best setting that luck does not make."""

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from pytest_specprobe.errors import MeasurementError
from pytest_specprobe.measure.passes import Contender, alternate
from pytest_specprobe.measure.request import Estimate, Generation, Prompt
from pytest_specprobe.measure.statistics import combine, resample
from pytest_specprobe.measure.sweep import Arm, Parity, Sweep, Trial, measure_arm, measure_parity, simultaneous
from pytest_specprobe.profiles import Speculation
from pytest_specprobe.report.build import parity_of

Make = Callable[..., Generation]
PROMPTS = [Prompt(id=f"p{i}", workload="w", text=f"text {i}", input_ids=(i,)) for i in range(3)]
ONE, TWO, THREE = (Speculation(num_steps=k, eagle_topk=1, num_draft_tokens=k + 1) for k in (1, 2, 3))
SETTINGS = (TWO, ONE, THREE)


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
    contenders = {f"{k}/1/{k + 1}": Contender(server, server.pin(k)) for k in (1, 2, 3)}
    got = alternate(contenders, PROMPTS, new_tokens=4, warmup=0)
    assert [c for c in server.calls if "@" in c] == [
        "p0@1", "p0@2", "p0@3", "p1@3", "p1@2", "p1@1", "p2@1", "p2@2", "p2@3"
    ]  # fmt: skip
    turns = [c for c in server.calls if "@" not in c]
    assert turns[:2] == ["=1", "flush"]  # a switch may leave half-written cache entries behind
    assert len(turns) == 2 * 3 + 2 * 9
    assert {name: len(t.generations) for name, t in got.items()} == {"1/1/2": 3, "2/1/3": 3, "3/1/4": 3}


ACCEPTED = {ONE: [1, 0], TWO: [2, 1, 0], THREE: [3, 1, 0, 0]}


def requests(
    make: Make, setting: Speculation, *, round_s: float, noise: float = 0.0, seed: int = 0
) -> list[Generation]:
    """24 prompts of very different speed; ``noise`` is what one turn differs from the next by."""
    rng = np.random.default_rng(seed)
    return [
        make(
            f"p{i}", ACCEPTED[setting] * 12, depth=setting.depth,
            round_s=round_s * (1 + i % 5 / 10) * (1 + noise * rng.standard_normal()),
        )
        for i in range(24)
    ]  # fmt: skip


def arm(
    make: Make, setting: Speculation, mine: list[Generation], own: list[Generation], plain: list[Generation]
) -> Arm:
    trial = Trial(setting=setting, how="one-boot", requests=mine, own=own, baseline=plain or None)
    return measure_arm(trial, own=TWO, settings=len(SETTINGS))


AS_FAST, SLOWER = (
    Parity(setting=TWO, ratio=Estimate(value, value - 0.02, value + 0.02, 24), identical=24, compared=24)
    for value in (1.0, 0.74)
)


def sweep(arms: list[Arm], *, parity: Parity | None = AS_FAST) -> Sweep:
    return Sweep(own=TWO, settings=SETTINGS, arms=tuple(arms), skipped={}, parity=parity, fallback=None)


def test_the_best_setting_and_its_lead_over_the_profiles_own(make: Make, plain: Make) -> None:
    base = [plain(f"p{i}", 40, token_s=0.012 * (1 + i % 5 / 10)) for i in range(24)]
    own = requests(make, TWO, round_s=0.024)
    one, three = requests(make, ONE, round_s=0.020), requests(make, THREE, round_s=0.0225)
    got = sweep([arm(make, TWO, own, own, base), arm(make, ONE, one, own, base), arm(make, THREE, three, own, base)])
    assert got.arms[0].over_own is None
    lead = got.arms[2].over_own
    assert lead is not None
    assert lead.value == pytest.approx((2 / 0.0225) / (2 / 0.024))
    assert got.best.setting == THREE
    assert got.surely_better
    speedup = got.arms[0].throughput.speedup
    assert speedup is not None
    assert speedup.value == pytest.approx(2 / 0.024 * 0.012)
    assert got.arms[1].acceptance.accept_length.value == pytest.approx(1.5)


def test_the_own_setting_can_be_the_best(make: Make) -> None:
    own = requests(make, TWO, round_s=0.02)
    got = sweep([arm(make, TWO, own, own, []), arm(make, ONE, requests(make, ONE, round_s=0.02), own, [])])
    assert got.best.setting == TWO
    assert not got.surely_better
    assert got.arms[0].throughput.speedup is None


@pytest.mark.parametrize("parity", [SLOWER, None])
def test_a_shared_boot_that_is_not_shown_to_be_as_fast_has_no_best_setting(make: Make, parity: Parity | None) -> None:
    """On an H200 a boot of five steps ran three at 0.74 of their own boot, and five were called surely faster."""
    own, three = requests(make, TWO, round_s=0.024), requests(make, THREE, round_s=0.018)
    alone = replace(arm(make, TWO, own, own, []), how="own-boot")
    got = sweep([arm(make, THREE, three, own, []), alone], parity=parity)
    assert got.best.setting == TWO
    assert not got.surely_better
    assert [got.comparable(a) for a in got.arms] == [False, True]
    assert sweep(list(got.arms)).best.setting == THREE


def test_intervals_widen_with_the_number_of_settings(make: Make) -> None:
    own = requests(make, TWO, round_s=0.02, noise=0.1)
    trial = Trial(
        setting=ONE,
        how="own-boot",
        requests=requests(make, ONE, round_s=0.02, noise=0.1, seed=1),
        own=own,
        baseline=None,
    )
    two, ten = (measure_arm(trial, own=TWO, settings=m) for m in (2, 10))
    assert simultaneous(10) == pytest.approx(0.995)
    for narrow, wide in (
        (two.over_own, ten.over_own),
        (two.throughput.tok_per_s, ten.throughput.tok_per_s),
        (two.acceptance.accept_length, ten.acceptance.accept_length),
    ):
        assert narrow is not None
        assert wide is not None
        assert wide.low <= narrow.low <= narrow.value == wide.value <= narrow.high <= wide.high
    assert ten.over_own is not None
    assert two.over_own is not None
    assert ten.over_own.high - ten.over_own.low > 1.2 * (two.over_own.high - two.over_own.low)


def test_the_luckiest_of_equal_settings_is_seldom_surely_better() -> None:
    """Winner's curse, simulated: eight settings that are all equal; at 95 % each, one of them often looks better."""
    rng = np.random.default_rng(3)
    settings, runs, prompts = 8, 150, 24
    workloads = ["a"] * 12 + ["b"] * 12
    naive = protected = 0
    plain = resample(workloads, replicates=1500)
    wide = resample(workloads, replicates=1500, confidence=simultaneous(settings))
    for _ in range(runs):
        work = rng.uniform(60, 140, prompts)
        own = work * (1 + 0.08 * rng.standard_normal(prompts))
        others = [work * (1 + 0.08 * rng.standard_normal(prompts)) for _ in range(settings - 1)]
        for resamples, narrow in ((plain, True), (wide, False)):
            leads = [
                combine(np.divide, resamples.ratio(work, other), resamples.ratio(work, own)).estimate()
                for other in others
            ]
            sure = max(leads, key=lambda lead: lead.value).low > 1
            naive, protected = naive + (sure and narrow), protected + (sure and not narrow)
    assert naive / runs > 0.06
    assert protected / runs < 0.05


def test_parity_is_shown_only_by_a_whole_interval_within_the_bound(make: Make) -> None:
    alone = requests(make, TWO, round_s=0.02, noise=0.02)
    same = measure_parity(TWO, requests(make, TWO, round_s=0.02, noise=0.02, seed=1), alone)
    assert same.shown
    assert (same.identical, same.compared) == (24, 24)
    slower = measure_parity(TWO, requests(make, TWO, round_s=0.0215, noise=0.02, seed=1), alone)
    assert slower.ratio.high < 1
    assert not slower.shown
    unsure = measure_parity(TWO, requests(make, TWO, round_s=0.02, noise=0.4, seed=1), alone)
    assert not unsure.shown
    other = requests(make, THREE, round_s=0.02)
    assert measure_parity(TWO, other, alone, dropped={"p0": "loops"}).identical == 0
    json.dumps(parity_of(same).document(), allow_nan=False)


def test_a_setting_deeper_than_it_may_be_is_refused(make: Make) -> None:
    own = requests(make, TWO, round_s=0.02)
    with pytest.raises(MeasurementError, match="the draft depth is 1"):
        arm(make, ONE, own, own, [])
