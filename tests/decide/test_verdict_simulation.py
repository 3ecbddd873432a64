"""How often is the verdict wrong? Whole probes are simulated, from rounds and seconds to the decision.

The simulation knows the truth and shares no code with the package: prompts differ (beta), rounds come in bursts,
machines drift (shared by the two servers of an interleaved pair) and every request has noise of its own.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_specprobe.decide.breakeven import measured_break_even
from pytest_specprobe.decide.settle import prompts_needed
from pytest_specprobe.decide.verdict import Decision, decide, evidence
from pytest_specprobe.measure.acceptance import measure_acceptance
from pytest_specprobe.measure.records import Estimate, Generation
from pytest_specprobe.measure.statistics import resample
from pytest_specprobe.measure.throughput import measure_throughput
from pytest_specprobe.profiles import Gate

DEPTH = 2
TOKENS = 128
ZIPF = 1 / np.arange(1, 400) ** 0.9  # the most common token is about 5 % of the text
ZIPF /= ZIPF.sum()


@dataclass(frozen=True)
class World:
    """The truth: acceptance per position of the drafter and its blind control, and what steps cost (seconds)."""

    accept: float
    blind: float | None
    round_s: float = 0.0288
    plain_s: float = 1 / 82
    spread: float = 6.0  # concentration of the beta: small is heterogeneous


def rounds_of(rng: np.random.Generator, p: float) -> list[int]:
    accepted: list[int] = []
    easy, tokens = True, 1
    while tokens < TOKENS:
        if rng.random() < 0.15:
            easy = rng.random() < 0.5
        q = min(p * (1.3 if easy else 0.7), 0.98)
        a = 0
        while a < DEPTH and rng.random() < q:
            a += 1
        accepted.append(a)
        tokens += a + 1
    return accepted


def request(i: int, workload: str, accepted: list[int] | None, ids: NDArray[np.int64], seconds: float) -> Generation:
    """A request of ``TOKENS`` tokens; its steps take ``seconds`` each."""
    steps = TOKENS - 1 if accepted is None else len(accepted)
    last = 1.0 + seconds * steps
    return Generation(
        prompt_id=f"p{i}", workload=workload, prompt_tokens=20, cached_tokens=0, completion_tokens=TOKENS,
        output_ids=tuple(ids.tolist()), text="", finish_reason="length",
        rounds=None if accepted is None else steps,
        accepted=None if accepted is None else sum(accepted),
        histogram=None if accepted is None else tuple(accepted.count(k) for k in range(DEPTH + 1)),
        sglang_accept_length=None, start_s=0.9, first_s=1.0, last_s=last, first_tokens=1,
        chunk_tokens=(1, TOKENS - 1), chunk_s=(1.0, last),
    )  # fmt: skip


def verdicts(world: World, *, probes: int, seed: int, timed: bool = True) -> Counter[str | None]:
    rng = np.random.default_rng(seed)
    return Counter(probe(world, rng, timed=timed).verdict for _ in range(probes))


def probe(world: World, rng: np.random.Generator, *, prompts: int = 24, timed: bool = True) -> Decision:
    own, blind, base = [], [], []
    for i in range(prompts):
        workload = f"w{i % 4}"
        ease = rng.beta(world.spread * 0.5, world.spread * 0.5) * 2  # mean 1, the prompt's own
        ids = rng.choice(len(ZIPF), p=ZIPF, size=TOKENS)
        drift = rng.uniform(1, 1.3)
        noise = rng.normal(1, 0.03, size=2)
        own.append(request(i, workload, rounds_of(rng, world.accept * ease), ids, world.round_s * drift * noise[0]))
        base.append(request(i, workload, None, ids, world.plain_s * drift * noise[1]))
        if world.blind is not None:
            blind.append(request(i, workload, rounds_of(rng, world.blind * ease), ids, world.round_s))
    acceptance = measure_acceptance(own, depth=DEPTH, blind=blind or None)
    throughput = measure_throughput(own, baseline=base) if timed else None
    point = None
    if throughput is not None and throughput.break_even_length is not None:
        point = measured_break_even(throughput.break_even_length, round_s=throughput.round_s, depth=DEPTH)
    return decide(evidence(acceptance, throughput, point), gate=Gate())


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
