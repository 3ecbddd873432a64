"""How often is the verdict wrong? Whole simulated probes, whose truth is known (:mod:`tests.decide.simulation`)."""

from collections import Counter

import numpy as np
import pytest

from pytest_specprobe.decide.breakeven import measured_break_even
from pytest_specprobe.decide.prompts_needed import prompts_needed
from pytest_specprobe.decide.verdict import evidence
from pytest_specprobe.measure.acceptance import measure_acceptance
from pytest_specprobe.measure.request import Estimate
from pytest_specprobe.measure.statistics import resample
from pytest_specprobe.measure.throughput import measure_throughput
from tests.decide.simulation import DEPTH, TOKENS, ZIPF, World, probe, request, rounds_of


def verdicts(world: World, *, probes: int, seed: int, timed: bool = True) -> Counter[str | None]:
    rng = np.random.default_rng(seed)
    return Counter(probe(world, rng, timed=timed).verdict for _ in range(probes))


def test_evidence_is_what_the_passes_measured() -> None:
    rng = np.random.default_rng(0)
    ids = rng.choice(len(ZIPF), p=ZIPF, size=TOKENS)
    own = [request(i, "w", rounds_of(rng, 0.5), ids, 0.03) for i in range(4)]
    base = [request(i, "w", None, ids, 0.012) for i in range(4)]
    alone, controlled = measure_acceptance(own, depth=DEPTH), measure_acceptance(own, depth=DEPTH, blind=own)
    assert evidence(alone).blind is False
    assert evidence(controlled).blind is True
    assert evidence(alone).speedup is evidence(alone).headroom is evidence(alone).tok_per_s is None
    assert evidence(alone).by_workload == {"w": alone.accept_length}
    throughput = measure_throughput(own, baseline=base)
    assert throughput.break_even_length is not None
    point = measured_break_even(throughput.break_even_length, round_s=throughput.round_s, depth=DEPTH)
    got = evidence(alone, throughput, point)
    assert (got.speedup, got.tok_per_s, got.headroom) == (
        throughput.speedup, throughput.tok_per_s, point.headroom_interval
    )  # fmt: skip
    assert (got.accept_length, got.margin, got.rounds) == (alone.accept_length, alone.margin, alone.rounds)


@pytest.mark.parametrize("accept", [0.0, 0.004], ids=["nothing accepted", "a few accidents"])
@pytest.mark.parametrize("blind", [None, 0.002], ids=["floor alone", "with blind control"])
def test_a_random_drafter_is_uncorrelated(accept: float, blind: float | None) -> None:
    """Although SGLang's own accept length for it is above 1.0."""
    assert verdicts(World(accept, blind), probes=20, seed=1) == {"uncorrelated": 20}


def test_a_drafter_no_better_than_its_blind_control_is_uncorrelated() -> None:
    """The one-sided error is at most 2.5 % in theory; 3 of 60 would happen in 19 % of such tests, 5 in 2 %."""
    assert verdicts(World(0.4, 0.4), probes=60, seed=2, timed=False)["uncorrelated"] >= 56


def test_a_drafter_that_reads_the_target_is_not_called_uncorrelated() -> None:
    assert verdicts(World(0.45, 0.33), probes=40, seed=3, timed=False)["uncorrelated"] <= 1


@pytest.mark.parametrize("round_s", [0.016, 0.020, 0.024])
def test_without_a_blind_control_a_drafter_that_ignores_its_target_is_not_worth_training(round_s: float) -> None:
    """It is far above the floor all the same: its own tokens alone say much about the next one."""
    rng = np.random.default_rng(13)
    for p in (0.25, 0.45, 0.65):
        for _ in range(4):
            found = probe(World(p, None, round_s=round_s), rng)
            assert found.verdict != "finetune"
            assert "finetune" not in found.candidates or "uncorrelated" in found.candidates
            assert found.gate != "pass" or found.verdict == "profitable"


def test_the_founding_world_is_verify_bound() -> None:
    """Acceptance 0.37 per position gives the accept length of about 1.5; no drafter of two steps pays well there."""
    found = verdicts(World(0.37, 0.1), probes=30, seed=4)
    assert found["verify-bound"] >= 27
    assert found["finetune"] + found["profitable"] == 0


def test_a_faster_verify_step_makes_it_worth_training() -> None:
    found = verdicts(World(0.37, 0.1, round_s=0.022), probes=30, seed=5)
    assert found["finetune"] >= 28


def test_a_drafter_that_pays_is_profitable() -> None:
    found = verdicts(World(0.6, 0.1, round_s=0.0185), probes=30, seed=6)
    assert found["profitable"] >= 27


def test_exactly_at_break_even_the_verdict_is_undecided() -> None:
    """Truth on the threshold: either side should be claimed about one time in twenty."""
    mean = _mean_delivered(0.5)
    found = verdicts(World(0.5, 0.1, round_s=mean / 82), probes=60, seed=7)
    assert found["undecided"] >= 53
    assert found["profitable"] <= 5


def test_exactly_at_the_headroom_threshold_the_verdict_is_undecided() -> None:
    world = World(0.37, 0.1, round_s=(1 + 0.8 + 0.64) / 1.10 / 82)
    found = verdicts(world, probes=60, seed=8)
    assert found["undecided"] >= 51
    assert found["verify-bound"] + found["finetune"] + found["undecided"] == 60


def _mean_delivered(accept: float) -> float:
    """Tokens per round in the long run, by brute force."""
    rng = np.random.default_rng(0)
    rounds = 0
    probes = 1500
    for _ in range(probes):
        rounds += len(rounds_of(rng, accept * rng.beta(3, 3) * 2))
    return probes * (TOKENS - 1) / rounds


@pytest.mark.parametrize("distance", [0.6, 0.8, 1.0])
def test_the_prompts_that_should_settle_it_do_in_four_of_five(distance: float) -> None:
    """Ratios of a pilot whose value lies ``distance`` half-widths off 1.0, about a truth that nobody knows."""
    rng = np.random.default_rng(11)
    spread = 0.1
    error = spread / np.sqrt(24)
    value, half = 1 - distance * 1.96 * error, 1.96 * error
    needed = prompts_needed(Estimate(value, value - half, value + half, 24), 1.0)
    assert needed is not None
    settled = 0
    for seed in range(300):
        values = rng.normal(rng.normal(value, error), spread, size=needed)
        r = resample(["w"] * needed, replicates=600, seed=seed).ratio(values, np.ones(needed)).estimate()
        settled += not r.low <= 1.0 <= r.high
    assert needed > 24
    assert 0.74 <= settled / 300 <= 0.86


def test_an_undecided_probe_asks_for_prompts_that_settle_it() -> None:
    """Whole probes of worlds on either side of break-even; each that asks for more is run again with so many."""
    rng = np.random.default_rng(12)
    mean = _mean_delivered(0.5)
    asked = settled = 0
    for _ in range(80):
        world = World(0.5, 0.1, round_s=mean / 82 * rng.uniform(0.86, 1.14))
        pilot = probe(world, rng)
        if pilot.verdict == "undecided" and pilot.more_prompts is not None:
            asked += 1
            settled += probe(world, rng, prompts=24 + pilot.more_prompts).verdict != "undecided"
    assert asked >= 15
    assert 0.6 <= settled / asked <= 0.97, (settled, asked)
